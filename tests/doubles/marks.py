"""Markers by what a test uses: read from its code, that of its fixtures, and the tests' own functions they call."""

from __future__ import annotations

import types
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

_TESTS = str(Path(__file__).parents[1])

_MARKS = {
    "browser": {"playwright", "sync_playwright"},
    "engine": {"PostgresEngine", "own_server", "the_nats", "NatsServer", "NatsCluster", "empty_redis", "own_redis"},
    "process": {"subprocess", "Popen", "fork"},
}
"""The names that tell of each."""


def mark(item: pytest.Item) -> None:
    """Mark a test as `browser`, `engine` or `process` where it needs one."""
    if isinstance(item, pytest.Function):
        for name in sorted(_marks_of(item)):
            item.add_marker(name)


def _marks_of(item: pytest.Function) -> set[str]:
    fixtures = item._fixtureinfo.name2fixturedefs
    functions = (item.function, *(definition.func for found in fixtures.values() for definition in found[-1:]))
    names = _names_reached(functions)
    return {mark for mark, telling in _MARKS.items() if telling & names}


@cache
def _names_reached(functions: tuple[object, ...]) -> frozenset[str]:
    """Return all names in functions of the tests, and in those of the tests' functions that they call."""
    found: set[str] = set()
    classes: set[type] = set()
    seen: set[object] = set()
    left = [*functions]
    while left:
        function = _plain(left.pop())
        if isinstance(function, types.FunctionType) and function not in seen and _is_ours(function):
            seen.add(function)
            for name in _names_in(function.__code__):
                found.add(name)
                if name not in _MARKS["engine"]:
                    value = function.__globals__.get(name)
                    classes |= {value} if isinstance(value, type) else set()
                    left.append(value)
        if not left:
            left = [method for each in classes for method in _methods(each, found) if method not in seen]
    return frozenset(found)


def _plain(function: object) -> object:
    """Return what is behind a method or a decorator."""
    function = getattr(function, "__func__", function)
    return getattr(function, "__wrapped__", function)


def _is_ours(function: types.FunctionType) -> bool:
    return function.__code__.co_filename.startswith(_TESTS)


def _names_in(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names_in(constant)


def _methods(kind: type, called: set[str]) -> list[types.FunctionType]:
    """Return the methods of a class of the tests that are called."""
    methods = [value for name, value in vars(kind).items() if name in called | {"__init__", "__enter__"}]
    return [plain for each in methods if isinstance(plain := _plain(each), types.FunctionType) and _is_ours(plain)]
