"""Whose memory a picture is of, and the command that tells more of a thing in it."""

from __future__ import annotations

import shlex

from backstory.projections.graph.words import line


def owner(user: str | None, agent: str | None) -> str:
    """Say whose memory it is."""
    if user is None and agent is None:
        return "the global memory"
    named = ["" if user is None else f"user {user}", "" if agent is None else f"agent {agent}"]
    return ", ".join(filter(None, named))


def command(user: str | None, agent: str | None, verb: str, *arguments: str) -> str:
    """Spell a command line that a shell takes as it is meant, whatever the names in it are."""
    words = ["backstory"]
    words += [f"--{option}={name}" for option, name in (("user", user), ("agent", agent)) if name is not None]
    words.append(verb)
    # What begins like an option is a name all the same.
    words += ["--"] if any(argument.startswith("-") for argument in arguments) else []
    return line(shlex.join([*words, *arguments]))
