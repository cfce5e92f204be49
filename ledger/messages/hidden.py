"""Which messages a host hides, and which of those a person said all the same (row D1)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from backstory.ledger.core.errors import InputError

__all__ = ["KeepHidden", "is_answer_of_a_person", "is_hidden"]

KeepHidden: TypeAlias = "Callable[[Mapping[str, object]], bool]"
"""Asked with a hidden message's additional_kwargs: whether a person said it all the same."""

_SUMMARY = "summarization"


def is_hidden(
    extra: Mapping[str, object], *, flagged: bool, of_user: bool, keep_hidden: KeepHidden | None = None
) -> bool:
    """Whether a message is none of the conversation; `extra` are its additional_kwargs.

    `flagged` says that the host marked it in another way. A user's message with a `lc_source` is LangChain's own note
    that nobody typed it; a summary among these is nobody's answer, whatever `keep_hidden` says. Without `keep_hidden`
    it is `is_answer_of_a_person` that keeps.

    Raises:
        InputError: `keep_hidden` failed.
    """
    source = extra.get("lc_source") if of_user else None
    if isinstance(source, str) and source:
        if _SUMMARY in source:
            return True
    elif not (flagged or extra.get("hide_from_ui")):
        return False
    if not of_user:
        return True
    if keep_hidden is None:
        return not is_answer_of_a_person(extra)
    try:
        return not keep_hidden(extra)
    except Exception as error:
        raise InputError(f"keep_hidden failed on a hidden message with {type(error).__name__}: {error}") from error


def is_answer_of_a_person(extra: Mapping[str, object]) -> bool:
    """Whether a hidden message carries what a person answered to a question of the agent.

    That is a `human_input_response` of version 1 with a source, the id of the request and a value; where it is a choice
    among options, with the option's id, too. A half of one is none.
    """
    answer = extra.get("human_input_response")
    if not isinstance(answer, Mapping) or answer.get("version") != 1 or answer.get("kind") != "human_input_response":
        return False
    needed = {"text": (), "option": ("option_id",)}.get(str(answer.get("response_kind")))
    if needed is None:
        return False
    values = [answer.get(name) for name in ("source", "request_id", "value", *needed)]
    return all(isinstance(value, str) and value.strip() for value in values)
