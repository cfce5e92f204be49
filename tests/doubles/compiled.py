"""The modules of a run, compiled once before its workers start: each of them would compile all of it at the same time.

Pytest rewrites the asserts of a test's module, which takes longer than to import it.
"""

from __future__ import annotations

import compileall
import multiprocessing
import os
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
from _pytest.assertion.rewrite import PYC_TAIL, _read_pyc, _rewrite_test, _write_pyc, assertstate_key, get_cache_dir

_TESTS = Path(__file__).parents[1]
_CODE = _TESTS.parent / "backstory"


def compile_ahead(config: pytest.Config) -> None:
    """Compile what the workers of this run will import, by as many processes as there are processors."""
    if hasattr(config, "workerinput") or not config.getoption("numprocesses", None) or sys.dont_write_bytecode:
        return
    asked = [Path(argument.partition("::")[0]).resolve() for argument in config.args]
    paths = [path for path in _modules(_TESTS) if not _is_test(path) or {path, *path.parents} & set(asked)]
    paths += _modules(_CODE)
    count = os.cpu_count() or 1
    forking = multiprocessing.get_context("fork")
    processes = [forking.Process(target=_compile, args=(config, paths[n::count])) for n in range(count)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()


def _compile(config: pytest.Config, paths: Iterable[Path]) -> None:
    for path in paths:
        compile_module(config, path)


def compile_module(config: pytest.Config, path: Path) -> None:
    """Compile a module to where it is looked for, unless it is there already."""
    if not _is_test(path) and path.name != "conftest.py":
        compileall.compile_file(path, quiet=2)
        return
    folder = get_cache_dir(path)
    folder.mkdir(parents=True, exist_ok=True)
    compiled = folder / f"{path.stem}{PYC_TAIL}"
    if _read_pyc(path, compiled) is None:
        identity, code = _rewrite_test(path, config)
        _write_pyc(config.stash[assertstate_key], code, identity, compiled)


def _is_test(path: Path) -> bool:
    return path.name.startswith("test_")


def _modules(folder: Path) -> Iterable[Path]:
    # Two of the package's folders are links.
    for found, _, names in os.walk(folder, followlinks=True):
        yield from (Path(found, name) for name in sorted(names) if name.endswith(".py"))
