"""Any event and any cause, built from the types themselves: a new field or a new event is covered as it is written."""

from __future__ import annotations

import msgspec
from hypothesis import strategies as st
from msgspec import inspect as types

from backstory.ledger.core.commit import Cause, Draft, Head
from backstory.ledger.core.events import Event
from backstory.ledger.core.sanitize import safe_json

__all__ = ["causes", "drafts", "events", "heads"]

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
integers = st.integers(-(2**63), 2**63 - 1)
floats = st.floats(allow_nan=False, allow_infinity=False)
plain = st.recursive(
    st.none() | st.booleans() | integers | floats | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=5,
).map(safe_json)


def of(kind: types.Type) -> st.SearchStrategy[object]:
    """A strategy for what msgspec says of a type."""
    match kind:
        case types.StrType():
            return texts
        case types.BoolType():
            return st.booleans()
        case types.IntType():
            return integers
        case types.FloatType():
            return floats
        case types.NoneType():
            return st.none()
        case types.CustomType(cls=cls) if cls is object:
            return plain
        case types.UnionType():
            return st.one_of(*map(of, kind.types))
        case types.VarTupleType():
            return st.lists(of(kind.item_type), max_size=3).map(tuple)
        case types.DictType():
            return st.dictionaries(of(kind.key_type), of(kind.value_type), max_size=3)
        case types.StructType():
            return st.builds(kind.cls, **{field.name: of(field.type) for field in kind.fields})
    raise NotImplementedError(kind)


events: st.SearchStrategy[Event] = of(types.type_info(Event))  # type: ignore[assignment]
causes: st.SearchStrategy[Cause] = of(types.type_info(Cause))  # type: ignore[assignment]
hashes = st.text("0123456789abcdef", min_size=64, max_size=64)
heads = st.builds(Head, seq=st.integers(0, 2**62), hash=hashes)
drafts = st.builds(
    Draft,
    at=texts.filter(lambda text: "\n" not in text),
    cause=causes,
    events=st.lists(events, max_size=4).map(tuple),
)


def names_of(kind: types.Type) -> set[type[msgspec.Struct]]:
    """The structs that a union is made of."""
    members = kind.types if isinstance(kind, types.UnionType) else ()
    return {member.cls for member in members if isinstance(member, types.StructType)}
