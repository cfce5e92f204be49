"""Bodies of requests under `/v1`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, JsonValue, RootModel, model_validator

from backstory.operations.changing import FactFields

__all__ = [
    "Clearing",
    "Delivery",
    "EditedFact",
    "Extraction",
    "FactToAdd",
    "Flushing",
    "Forgetting",
    "FullContext",
    "Importing",
    "OfThread",
    "PolicyChanges",
    "RemovingUser",
    "Retrying",
    "Reverting",
    "RollingBack",
    "WhatIfQuestion",
]


def _no_boolean(value: object) -> object:
    """Refuse true and false where a number belongs: they would count as 1 and 0."""
    if isinstance(value, bool):
        raise ValueError(f"must be a number, got {str(value).lower()}")  # noqa: TRY004 the error that pydantic expects
    return value


_Number = BeforeValidator(_no_boolean)
_Thread = Annotated[str, Field(min_length=1, max_length=512, description="The conversation's id.", examples=["monday"])]
_Category = Annotated[
    str,
    Field(
        min_length=1,
        max_length=512,
        description="preference, knowledge, context, behavior, goal, correction, or a name of your own.",
        examples=["preference"],
    ),
]
_Confidence = Annotated[float, _Number, Field(ge=0, le=1, examples=[0.9])]
_DryRun = Annotated[bool, Field(description="Only say what would change.")]
_Seq = Annotated[int, _Number, Field(ge=0, lt=10**18)]
_Name = Annotated[str, Field(max_length=100)]
_Tags = Annotated[list[Annotated[str, Field(max_length=300)]], Field(max_length=20, examples=[["project-a"]])]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class Message(BaseModel):
    """A message, in the shape of OpenAI's or LangChain's; further fields are read as those libraries mean them."""

    model_config = ConfigDict(extra="allow", frozen=True, hide_input_in_errors=True)

    role: str | None = Field(
        default=None,
        description="user or human, assistant or ai, tool, system. LangChain's messages have a `type` in its place.",
        examples=["user"],
    )
    content: str | list[JsonValue] | None = Field(default=None, examples=["I am allergic to peanuts."])


class Delivery(_Body):
    """Messages of one conversation."""

    thread: _Thread
    messages: list[Message]
    mode: Literal["conversation", "branch", "append", "replace"] = Field(
        default="conversation",
        description="`conversation` finds out what is new, `branch` also which pending turns a message with another "
        "id replaces, with `append` all messages are new, with `replace` they are the whole conversation.",
    )
    immediate: bool = Field(default=False, description="Do not wait for the debounce.")
    tags: _Tags = Field(
        default=[],
        description="What the new turns are about. A fact gets the tags of the turns it is learned from.",
    )

    def plain(self) -> list[dict[str, object]]:
        """Return the messages as they were sent."""
        return [message.model_dump(exclude_unset=True) for message in self.messages]


class Reply(_Body):
    """A recorded answer of a model."""

    thread_id: _Thread
    reply: str | dict[str, JsonValue]


class Extraction(_Body):
    """Which pending updates to run. Recorded answers take the model's place."""

    thread: _Thread | None = None
    replies: list[Reply] | None = None


class OfThread(_Body):
    """A conversation whose parked updates are meant."""

    thread: _Thread


class Retrying(_Body):
    """Which parked updates to run again; all of them unless a conversation is named."""

    thread: _Thread | None = None


class Flushing(_Body):
    """How long to run what is pending."""

    timeout: Annotated[float, _Number] = Field(default=30.0, ge=0, le=300, description="In seconds.")


class _Stated(_Body):
    """When a fact holds: a year, month, day or moment each, with its offset from UTC behind it. What it is about."""

    valid_from: str | None = Field(default=None, description="Since when it is true.", examples=["2026-03"])
    valid_until: str | None = Field(default=None, description="Until when it is true, to the end of the day it names.")
    expires_at: str | None = Field(default=None, description="Until when it is to be remembered, likewise.")

    tags: _Tags | None = Field(default=None, description="Names that reads can be filtered by.")
    attributes: dict[str, str | int | float | bool] | None = Field(
        default=None, description="Names and values, to filter by as `name=value`.", examples=[{"team": "red"}]
    )

    @property
    def stated(self) -> FactFields:
        """What it states, by name."""
        return {
            "valid_from": self.valid_from,
            "valid_until": self.valid_until,
            "expires_at": self.expires_at,
            "tags": self.tags,
            "attributes": self.attributes,
        }


class FactToAdd(_Stated):
    """A fact that a person enters. No model changes it from then on."""

    content: str = Field(min_length=1, examples=["User is allergic to peanuts"])
    category: _Category = "context"
    confidence: _Confidence = 0.9


class EditedFact(_Stated):
    """What changes of a fact; what is left out stays, and an empty time is unknown again.

    Tags and attributes take the place of all that it has.
    """

    content: str | None = Field(default=None, min_length=1, examples=["User is allergic to all nuts"])
    category: _Category | None = None
    confidence: _Confidence | None = None


class Importing(_Body):
    """A memory to take in: a document, or a list of texts or facts."""

    document: dict[str, JsonValue] | list[JsonValue] = Field(
        description="memory.json, or a list.", examples=[["User is allergic to peanuts"]]
    )
    replace: bool = Field(default=False, description="Put it in place of the memory, not beside it.")


class Clearing(_Body):
    """What to empty."""

    all_agents: bool = Field(default=False, description="Empty the memories of all the user's agents, too.")


class Reverting(_Body):
    """The update to undo."""

    seq: _Seq | _Name = Field(
        default="HEAD",
        description="A commit: its number, HEAD, HEAD~1, or the beginning of its hash.",
        examples=[3],
    )
    dry_run: _DryRun = False
    force: bool = Field(default=False, description="Undo in spite of conflicts with later work.")
    with_agents: bool = Field(
        default=False, description="Of a clear of the user and all agents, undo the agents', too."
    )


class RollingBack(_Body):
    """The moment to go back to."""

    to: _Seq | _Name = Field(
        description="A commit (its number, HEAD~1, or the beginning of its hash) or a time that is no whole day.",
        examples=[2],
    )
    dry_run: _DryRun = False


_Policy = dict[str, bool | int | float | str | tuple[str | dict[str, bool | int | str], ...]]


class PolicyChanges(RootModel[_Policy]):
    """Policy keys with their new values."""

    model_config = ConfigDict(
        frozen=True, hide_input_in_errors=True, json_schema_extra={"examples": [{"max_facts": 50}]}
    )


class WhatIfQuestion(_Body):
    """Another policy for the whole history."""

    policy: _Policy = Field(description="Policy keys with their values.", examples=[{"max_facts": 20}])
    until: _Seq | _Name | None = Field(
        default=None, description="Leave out commits later than this one: its number, or HEAD~1."
    )


class FullContext(_Body):
    """What a conversation is about, and how large the block may be."""

    messages: str | list[Message] | None = Field(default=None, examples=["What shall I cook for Ada?"])
    max_tokens: Annotated[int, _Number, Field(ge=1, le=1_000_000)] | None = None
    thread: _Thread | None = None
    facts: bool = True
    tags: _Tags | None = Field(default=None, description="Of the facts with tags only those with all of these.")

    def about(self) -> str | list[dict[str, object]] | None:
        """Return the messages as they were sent."""
        if isinstance(self.messages, list):
            return [message.model_dump(exclude_unset=True) for message in self.messages]
        return self.messages


class Forgetting(_Body):
    """What to erase: a fact, a conversation, a text, or everything."""

    fact_id: str | None = Field(default=None, examples=["fact_2_0"])
    thread: _Thread | None = None
    matching: str | None = Field(default=None, min_length=1)
    everything: bool = False
    with_evidence: bool = Field(default=False, description="With a fact, erase the turns it was learned from, too.")
    dry_run: _DryRun = False

    @model_validator(mode="after")
    def _one_thing(self) -> Forgetting:
        given = [self.fact_id is not None, self.thread is not None, self.matching is not None, self.everything]
        if sum(given) != 1:
            raise ValueError("name exactly one thing to forget: fact_id, thread, matching or everything")
        return self


class RemovingUser(_Body):
    """Whether to remove a user, or only to say what would go."""

    dry_run: _DryRun = False
