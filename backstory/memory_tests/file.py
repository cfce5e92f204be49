"""File of a memory test: conversations, kept replies, a policy and what is expected of the memory.

A YAML or JSON mapping; docs/reference/memory-test.schema.json is its JSON schema. Paths are relative to the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from backstory.ledger.core.errors import InputError
from backstory.ledger.core.kinds import Rule, words_of
from backstory.ledger.core.policy import PolicyValue
from backstory.ledger.disk.files import read_given
from backstory.services.named import read_policy

if TYPE_CHECKING:
    from pydantic import GetJsonSchemaHandler
    from pydantic.json_schema import JsonSchemaValue
    from pydantic_core import CoreSchema, ErrorDetails

ExpectationKind: TypeAlias = Literal["remembers", "never", "forgets", "count", "context", "refused"]
"""The kinds of expectations."""

KINDS: tuple[ExpectationKind, ...] = get_args(ExpectationKind)
_MOST_ERRORS = 5


RULES = tuple(sorted(words_of(Rule)))


def _is_a_pattern(value: str) -> str:
    try:
        re.compile(value)
    except re.error as error:
        raise ValueError(f"it is no regular expression: {error}") from error
    return value


_Text = Annotated[str, Field(min_length=1)]
_Pattern = Annotated[str, Field(min_length=1), AfterValidator(_is_a_pattern)]
_Number = Annotated[int, Field(ge=0)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class _Filter(_Part):
    holds: _Text | None = Field(None, description="Words of the fact in this order; case and spaces do not matter.")
    like: _Text | None = Field(None, description="A text that the fact is like, in its words or its meaning.")
    matches: _Pattern | None = Field(None, description="A regular expression that is found in the fact.")
    category: _Text | None = Field(None, description="The category of the fact.")
    tag: _Text | None = Field(None, description="A tag of the fact.")


class Match(_Filter):
    """Which facts are meant: all keys that are given must agree with a fact. A text stands for `holds`."""

    @model_validator(mode="before")
    @classmethod
    def _of_text(cls, value: object) -> object:
        return {"holds": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _says_which(self) -> Match:
        if not self.model_dump(exclude_none=True):
            raise ValueError(f"it must be a text, or have one of {', '.join(type(self).model_fields)}")
        return self

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Allow a text."""
        return {"anyOf": [{"type": "string", "minLength": 1}, handler.resolve_ref_schema(handler(core))]}


class Refused(Match):
    """Which refused candidates are meant, also by the rule that refused them."""

    rule: _Text | None = Field(None, description="The rule; docs/reference/rules.md has all of them.")

    @field_validator("rule")
    @classmethod
    def _is_a_rule(cls, value: str | None) -> str | None:
        if value is not None and value not in RULES:
            raise ValueError(_unknown("rule", value, RULES))
        return value


class Bounds(_Part):
    """The most and the fewest. A number stands for both."""

    max: _Number | None = None
    min: _Number | None = None

    @model_validator(mode="before")
    @classmethod
    def _of_number(cls, value: object) -> object:
        return {"max": value, "min": value} if isinstance(value, int) else value

    @model_validator(mode="after")
    def _bounds_something(self) -> Bounds:
        if self.max is None and self.min is None:
            raise ValueError("it must be a number, or have max, min or both")
        return self

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Allow a number."""
        return {"anyOf": [{"type": "integer", "minimum": 0}, handler.resolve_ref_schema(handler(core))]}


class Count(_Filter):
    """How many facts there are, of all or of those that match: `facts`, or `max` and `min`."""

    facts: Bounds | None = None
    max: _Number | None = None
    min: _Number | None = None

    @model_validator(mode="after")
    def _bounds_something(self) -> Count:
        if (self.facts is not None) == (self.max is not None or self.min is not None):
            raise ValueError("it must have either facts, or max and min")
        return self

    @property
    def bounds(self) -> Bounds:
        """The most and the fewest."""
        return self.facts or Bounds(max=self.max, min=self.min)


class Context(_Part):
    """What the block of memory for a question has."""

    for_: _Text | None = Field(None, alias="for", description="The question; without it the block of no question.")
    holds: _Text | None = Field(None, description="Words that stand in the block.")
    lacks: _Text | None = Field(None, description="Words that do not stand in the block.")
    like: _Text | None = Field(None, description="A text that a fact in the block is like.")
    matches: _Pattern | None = Field(None, description="A regular expression that is found in the block.")

    @model_validator(mode="after")
    def _asks_something(self) -> Context:
        if not self.model_dump(exclude_none=True, exclude={"for_"}):
            raise ValueError("it must have one of holds, lacks, like, matches")
        return self


class Expectation(_Part):
    """One thing that must hold, at the end or `at` a thread's last update, a commit or a time."""

    remembers: Match | None = None
    never: Match | None = None
    forgets: Match | None = None
    count: Count | None = None
    context: Context | None = None
    refused: Refused | None = None
    at: str | int | None = None

    @model_validator(mode="after")
    def _is_one(self) -> Expectation:
        given = [kind for kind in KINDS if getattr(self, kind) is not None]
        if len(given) != 1:
            raise ValueError(f"it must have exactly one of {', '.join(KINDS)}, got {' and '.join(given) or 'none'}")
        return self


_PolicyValue = bool | int | float | str | list[str | dict[str, bool | int | str]]


class HomePart(_Part):
    """Conversations of a memory in the home: by default all of its threads."""

    user: str | None = None
    agent: str | None = None
    threads: list[str] | None = None
    since: str | int | None = None
    until: str | int | None = None


class MemoryTest(_Part):
    """A memory test."""

    conversations: Annotated[list[_Text], Field(min_length=1)] | None = Field(
        None, description="Files of messages; lines of a thread that follow each other are one update."
    )
    home: HomePart | None = None
    replies: _Text | None = Field(None, description="The file of kept replies.")
    model: _Text | None = Field(None, description="The model to ask; as configured unless given.")
    policy: dict[str, _PolicyValue] = Field({}, description="Policy keys, over today's.")
    expect: list[Expectation] = Field(min_length=1)

    @model_validator(mode="after")
    def _has_conversations(self) -> MemoryTest:
        if (self.conversations is None) == (self.home is None):
            raise ValueError("it must have either conversations, a list of files, or home")
        return self

    @property
    def overrides(self) -> dict[str, PolicyValue]:
        """The policy keys of the file; an unknown one is a ConfigError."""
        stated = self.policy.items()
        return read_policy({key: tuple(value) if isinstance(value, list) else value for key, value in stated})


def schema() -> dict[str, object]:
    """Return the JSON schema of a file."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **MemoryTest.model_json_schema(by_alias=True),
        "title": "Backstory memory test",
    }


def read_test(path: Path) -> MemoryTest:
    """Read the file of a test.

    Raises:
        InputError: It cannot be read, or is no memory test; the message names the file and the key.
        ConfigError: Its policy has an unknown key.
    """
    given = _parsed(path)
    try:
        test = MemoryTest.model_validate(given)
    except ValidationError as error:
        found = error.errors(include_url=False)
        more = f" (and {len(found) - _MOST_ERRORS} more)" if len(found) > _MOST_ERRORS else ""
        raise InputError(f"{path}: {'; '.join(map(_in_words, found[:_MOST_ERRORS]))}{more}") from error
    # An unknown policy key is refused here.
    _ = test.overrides
    return test


def _parsed(path: Path) -> object:
    import yaml

    class Loader(yaml.SafeLoader):
        """YAML without dates: a time is read as it stands."""

    Loader.yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    text = read_given(path, "name the file of a memory test").decode("utf-8", "replace")
    try:
        given: object = yaml.load(text, Loader)  # noqa: S506 it is a SafeLoader
    except yaml.YAMLError as error:
        said = " ".join(str(error).split())
        raise InputError(f"{path} is neither YAML nor JSON: {said}") from error
    except RecursionError as error:
        raise InputError(f"{path} is nested too deep") from error
    if not isinstance(given, dict):
        raise InputError(f"{path} must be a mapping with conversations (or home) and expect")
    return given


_KINDS_IN_WORDS = {
    "list_type": "it must be a list, such as [a, b]",
    "model_type": "it must have keys, such as {key: value}",
    "string_type": "it must be a text: put it into quotes",
}


def _in_words(error: ErrorDetails) -> str:
    where = ""
    for part in error["loc"]:
        where += f"[{part + 1}]" if isinstance(part, int) else f".{part}" if where else str(part)
    if error["type"] == "extra_forbidden":
        return _unknown("key", where, _keys_beside(error["loc"]))
    if error["type"] == "missing":
        return f"{where} is missing"
    said = _KINDS_IN_WORDS.get(error["type"]) or error["msg"].removeprefix("Value error, ")
    return f"{where}: {said}" if where else said


def _keys_beside(loc: tuple[int | str, ...]) -> Iterable[str]:
    """Return the keys of the part that an unknown key stands in."""
    names = [part for part in loc[:-1] if isinstance(part, str)]
    parts: dict[tuple[str, ...], type[BaseModel]] = {
        (): MemoryTest,
        ("home",): HomePart,
        ("expect",): Expectation,
        ("expect", "count"): Count,
        ("expect", "count", "facts"): Bounds,
        ("expect", "context"): Context,
        ("expect", "refused"): Refused,
    }
    fields = parts.get(tuple(names), Match).model_fields
    return [field.alias or name for name, field in fields.items()]


def _unknown(what: str, given: str, known: Iterable[str]) -> str:
    names = list(known)
    near = get_close_matches(given.rpartition(".")[2], names, 1, 0.6)
    meant = f"did you mean {near[0]}?" if near else f"known are {', '.join(names)}"
    return f"{given} is no {what}: {meant}"
