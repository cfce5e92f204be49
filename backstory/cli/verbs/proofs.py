"""Verbs that verify and sign the log: verify, head, keygen."""

from __future__ import annotations

from typing import Annotated

import typer

from backstory.cli.pages.page import write_raw
from backstory.cli.session import Session, progress
from backstory.ledger.core.errors import UsageError


def verify(
    session: Session,
    *,
    expect_head: Annotated[
        str | None,
        typer.Option("--expect-head", metavar="HASH", help="A hash that must be in the chain; see `head`."),
    ] = None,
    note: Annotated[
        str | None,
        typer.Option("--note", metavar="FILE|-", help="A signed note whose head must be in the chain. Needs --key."),
    ] = None,
    key: Annotated[
        str | None, typer.Option("--key", metavar="KEY|FILE", help="The public key that signed the note.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Check every user and agent of the home.")] = False,
) -> None:
    """Check the hash chains of the logs, and that memory.json agrees with them. Exit 1 if anything is wrong.

    It also exits 1 without --user where only users have memories, since nothing was checked then.

    The chain has no key. A log that was rewritten with new hashes is detected only by a head that is kept elsewhere:
    in the configured witness file, in a signed note, or as a hash.

    Example: backstory verify --note head.note --key ada.pub
    """
    from backstory.cli.pages.history import verification_lines, verification_table
    from backstory.ledger.core.scope import Scope

    if (note is None) != (key is None):
        raise UsageError("--note and --key belong together: name the note, and the public key that has signed it")
    with session.opened() as bs:
        if not every:
            scope = session.scope
            elsewhere = session.note_missing(bs, scope) and scope == Scope()
            result = bs.memory_of(scope).verify(
                expect_head=expect_head,
                note=None if note is None else _text(note),
                key=None if key is None else _public_key(key),
            )
            session.answer(result, verification_lines)
            # Of what was meant nothing was checked.
            ok = result.ok and not elsewhere
        else:
            if expect_head is not None or note is not None:
                option = "--expect-head" if expect_head is not None else "--note"
                raise UsageError(f"{option} checks one memory: leave out --all")
            owners = bs.owners()
            results = []
            with progress("checking", len(owners)) as step:
                for number, owner in enumerate(owners, 1):
                    results.append((owner, bs.memory_of(owner).verify()))
                    step(number)
            session.answer_each(results, verification_table)
            ok = all(result.ok for _, result in results)
    if not ok:
        raise typer.Exit(1)


def _public_key(given: str) -> str:
    """Return a key; an argument without a plus sign is the name of a file with the key."""
    return given if "+" in given else _text(given).strip()


def _text(file: str) -> str:
    from backstory.cli.inputs import read_text

    return read_text(file)


def head(
    session: Session,
    *,
    sign: Annotated[
        str | None,
        typer.Option(
            "--sign", metavar="KEYFILE", help="Print a note that is signed with the private key in this file."
        ),
    ] = None,
) -> None:
    """Print the number and the hash of the last commit. Keep them elsewhere for `verify`.

    Example: backstory head --sign ada.key > head.note
    """
    with session.memory() as memory:
        if sign is not None:
            session.answer(memory.sign_head(_text(sign)), lambda _, signed: write_raw(signed.note))
            return
        from backstory.cli.pages.tables import head_line

        session.answer(memory.head(), head_line)


def keygen(
    session: Session,
    *,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the signer, such as example.com/ada.")],
    file: Annotated[str, typer.Argument(metavar="KEYFILE", help="New file for the private key.")],
) -> None:
    """Create a key pair for signing heads, and print the public key for `verify --key`.

    Keep the private key away from the machine that has the log. With both, a forged log can be signed.

    Example: backstory keygen example.com/ada ada.key > ada.pub
    """
    from backstory.cli.pages.answers import NewKey
    from backstory.witness.signing import new_key

    pair = new_key(name)
    _write_secret(file, pair.private)
    session.answer(NewKey(pair.public, file), lambda _, made: write_raw(f"{made.key}\n"))


def _write_secret(file: str, secret: str) -> None:
    """Write a secret to a new file with mode 0600."""
    import os

    from backstory.ledger.disk.files import refused, write_whole

    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            write_whole(descriptor, f"{secret}\n".encode())
        finally:
            os.close(descriptor)
    except FileExistsError as error:
        raise UsageError(f"{file} exists, and a key is never overwritten: name a new file") from error
    except OSError as error:
        raise refused(file, "write the key to", error) from error
