"""Checks of a policy: what it may hold in words and categories, and how a refusal names the key."""

from __future__ import annotations

import pytest

from backstory.ledger.core.errors import ConfigError
from backstory.ledger.core.policy import MAX_INSTRUCTIONS, Category, Policy, check_policy


def categories(count: int) -> tuple[Category, ...]:
    return tuple(Category(f"name{number}") for number in range(count))


@pytest.mark.parametrize(
    ("policy", "named"),
    [
        (Policy(instructions="x" * (MAX_INSTRUCTIONS + 1)), "instructions must be"),
        (Policy(categories=["work"]), "categories must be a list"),  # type: ignore[arg-type]
        (Policy(categories=("work",)), "categories must be a list"),  # type: ignore[arg-type]
        (Policy(categories=categories(51)), "categories may name 50 at most, got 51"),
        (Policy(categories=(Category("work"), Category("Work"))), "names 'Work' twice"),
        (Policy(categories=(Category("work", "x" * (MAX_INSTRUCTIONS + 1)),)), "description of category work"),
        (Policy(categories=(Category(" work"),)), "name of a category"),
        (Policy(categories=(Category("work", lifetime=0),)), "lifetime of category work"),
    ],
)
def test_a_policy_whose_words_are_not_right_is_refused_by_its_key(policy: Policy, named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        check_policy(policy)


def test_a_policy_may_hold_as_many_words_and_categories_as_it_says() -> None:
    policy = Policy(instructions="x" * MAX_INSTRUCTIONS, categories=categories(50))
    assert check_policy(policy) == policy
