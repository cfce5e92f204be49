"""Memory tests in pytest."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from backstory.config.model_factory import ModelLike
    from backstory.memory_tests.run import FileResult


def memory_test(
    file: str | Path,
    *,
    home: str | Path | None = None,
    config: str | Path | Mapping[str, object] | None = None,
    model: ModelLike | None = None,
    record: bool = False,
    times: int = 1,
) -> FileResult:
    """Run a file of a memory test, as `backstory test` does, and fail where an expectation does not hold.

    Args:
        file: The file.
        home: The home that the file's `home` names parts of.
        config: A YAML file, or a mapping of keys; its rules are today's.
        model: The model to ask where no reply is kept; with `replies` in the file only if `record` is set.
        record: Ask for the replies that are missing, and keep them.
        times: How often to run the file.

    Returns:
        The result, when everything holds.

    Raises:
        AssertionError: An expectation does not hold; the text says why.
        InputError: The file is wrong, or a reply is missing.
    """
    from backstory.memory_tests.run import run_tests

    (result,) = run_tests([file], home=home, config=config, model=model, record=record, times=times).files
    failed = [verdict.text for verdict in result.expectations if not verdict.ok]
    if failed:
        raise AssertionError("\n".join((f"{result.file}: {len(failed)} of {len(result.expectations)} fail", *failed)))
    return result
