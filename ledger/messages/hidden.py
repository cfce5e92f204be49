"""Hidden messages: which ones a host hides, and which of those a person wrote."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from backstory.ledger.core.errors import InputError

KeepHidden: TypeAlias = "Callable[[Mapping[str, object]], bool]"
"""Returns whether a person wrote a hidden message, given its additional_kwargs."""

_SUMMARY = "summarization"


def is_hidden(
    extra: Mapping[str, object], *, flagged: bool, of_user: bool, keep_hidden: KeepHidden | None = None
) -> bool:
    """Whether a message is hidden and not part of the conversation.

    A user's message with an `lc_source` was made by LangChain. If it is a summary it is always hidden.

    Args:
        extra: the message's additional_kwargs.
        flagged: whether the host marked the message as hidden in another way.
        of_user: whether it is a user's message; a hidden message of another role stays hidden.
        keep_hidden: whether a person wrote a hidden message; `is_answer_of_a_person` by default.

    Raises:
        InputError: `keep_hidden` raised an error.
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
    """Whether a hidden message holds a person's answer to a question of the agent.

    This is a `human_input_response` of version 1 with a source, a request id and a value, and, if it chooses an option,
    the option's id. One with a missing field does not count.
    """
    answer = extra.get("human_input_response")
    if not isinstance(answer, Mapping) or answer.get("version") != 1 or answer.get("kind") != "human_input_response":
        return False
    needed = {"text": (), "option": ("option_id",)}.get(str(answer.get("response_kind")))
    if needed is None:
        return False
    values = [answer.get(name) for name in ("source", "request_id", "value", *needed)]
    return all(isinstance(value, str) and value.strip() for value in values)
