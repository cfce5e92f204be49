"""Verbs that prove what the log says: verify, head, keygen."""

from __future__ import annotations

from typing import Annotated

import typer

from backstory.cli.pages.page import write_as_is
from backstory.cli.session import progress, session_of

__all__ = ["head", "keygen", "verify"]


def verify(
    ctx: typer.Context,
    *,
    expect_head: Annotated[
        str | None,
        typer.Option("--expect-head", metavar="HASH", help="A hash that has to be in the chain; see `head`."),
    ] = None,
    note: Annotated[
        str | None,
        typer.Option("--note", metavar="FILE|-", help="A signed note whose head has to be in the chain; with --key."),
    ] = None,
    key: Annotated[
        str | None, typer.Option("--key", metavar="KEY|FILE", help="The public key that has to have signed the note.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Check every user and agent of the home.")] = False,
) -> None:
    """Check that the log is what was written, and memory.json what the log says.

    The chain has no key. A log that was written anew, with all its hashes, is found only by a head that is kept
    elsewhere: in the configured witness file, in a signed note, or as a hash.

    Example: backstory verify --note head.note --key ada.pub
    """
    from backstory.cli.pages.answers import VerifiedIn
    from backstory.cli.pages.stories import verification_lines, verification_table
    from backstory.ledger.core.errors import UsageError

    session = session_of(ctx)
    if (note is None) != (key is None):
        raise UsageError("--note and --key belong together: name the note, and the public key that has signed it")
    with session.opened() as bs:
        if not every:
            result = bs.memory(session.user, session.agent).verify(
                expect_head=expect_head,
                note=None if note is None else _text(note),
                key=None if key is None else _public_key(key),
            )
            session.answer(result, verification_lines)
            ok = result.ok
        else:
            if expect_head is not None or note is not None:
                told = "--expect-head" if expect_head is not None else "--note"
                raise UsageError(f"{told} is about one memory: leave out --all")
            owners = bs.owners()
            results = []
            with progress("checking", len(owners)) as step:
                for number, owner in enumerate(owners, 1):
                    results.append(VerifiedIn.of(owner, bs.memory(owner.user, owner.agent).verify()))
                    step(number)
            session.answer(results, verification_table)
            ok = all(result.ok for result in results)
    if not ok:
        raise typer.Exit(1)


def _public_key(given: str) -> str:
    """A key is name+id+base64; what has no plus sign names a file that holds one."""
    return given if "+" in given else _text(given).strip()


def _text(file: str) -> str:
    from backstory.cli.inputs import read_text

    return read_text(file)


def head(
    ctx: typer.Context,
    *,
    sign: Annotated[
        str | None,
        typer.Option("--sign", metavar="KEYFILE", help="Print a signed note over it, with the key of this file."),
    ] = None,
) -> None:
    """Print the number and hash of the last commit, to keep elsewhere.

    Example: backstory head --sign ada.key > head.note
    """
    session = session_of(ctx)
    with session.memory() as memory:
        if sign is not None:
            session.answer(memory.sign_head(_text(sign)), lambda _, signed: write_as_is(signed.note))
            return
        from backstory.cli.pages.tables import head_line

        session.answer(memory.head(), head_line)


def keygen(
    ctx: typer.Context,
    *,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Who signs, such as example.com/ada.")],
    file: Annotated[str, typer.Argument(metavar="KEYFILE", help="A new file for the private key.")],
) -> None:
    """Make a key to sign heads with; print the public one, which `verify --key` takes.

    Keep the private key away from the machine that holds the log: who has both can sign a forged one.

    Example: backstory keygen example.com/ada ada.key > ada.pub
    """
    from backstory.cli.pages.answers import NewKey
    from backstory.witness.signing import new_key

    session = session_of(ctx)
    pair = new_key(name)
    _put_down(file, pair.private)
    session.answer(NewKey(pair.public, file), lambda _, made: write_as_is(f"{made.key}\n"))


def _put_down(file: str, secret: str) -> None:
    """Write a secret to a new file with mode 0600."""
    import os

    from backstory.ledger.core.errors import UsageError
    from backstory.ledger.log.store.files import refused, write_whole

    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            write_whole(descriptor, f"{secret}\n".encode())
        finally:
            os.close(descriptor)
    except FileExistsError as error:
        raise UsageError(f"{file} is there already, and a key is not overwritten: name a new file") from error
    except OSError as error:
        raise refused(file, "write the key to", error) from error
