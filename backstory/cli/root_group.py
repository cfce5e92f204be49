"""Root command: turns each error of a verb into one line on standard error and an exit code."""

from __future__ import annotations

import contextlib
import os
import sys
from itertools import takewhile
from typing import Any, NoReturn

import typer
from typer.core import TyperGroup

from backstory.cli.global_options import with_plain_flags
from backstory.cli.pages.page import one_line, show_traceback, write_json, write_message
from backstory.cli.session import Session

_INTERRUPTED = 130
_BROKEN_PIPE = 141
_FAILED = 3


class Root(TyperGroup):
    """The group of all verbs."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the global options."""
        return with_plain_flags(super().get_params(ctx))

    def main(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Run a verb and exit with its exit code."""
        kwargs |= {"standalone_mode": False, "prog_name": "backstory"}
        given = kwargs.get("args") or (args[0] if args else None)
        words = list(sys.argv[1:] if given is None else given)
        try:
            code = super().main(*args, **kwargs)
        except Exception as error:  # noqa: BLE001 a user never sees a traceback without --debug
            code = _report(error, None, words)
        sys.exit(code if isinstance(code, int) else 0)

    def invoke(self, ctx: Any) -> None:
        """Run a verb, and report its error while the global options are known."""
        try:
            super().invoke(ctx)
            sys.stdout.flush()
        except typer.Exit:
            raise
        except KeyboardInterrupt:
            with contextlib.suppress(OSError):
                write_message(ctx.obj.interrupted if isinstance(ctx.obj, Session) else "interrupted")
            raise typer.Exit(_INTERRUPTED) from None
        except BrokenPipeError:
            _drop_stdout()
            raise typer.Exit(_BROKEN_PIPE) from None
        except Exception as error:
            if _is_wrong_use(error):
                raise
            raise typer.Exit(_report(error, ctx.obj, [])) from error


def _is_wrong_use(error: Exception) -> bool:
    """Whether the parser raised it. Its class depends on the version of typer."""
    return hasattr(error, "format_message") and hasattr(error, "exit_code")


def _report(error: Exception, session: Session | None, words: list[str]) -> int:
    """Write an error as one line, and with --json as a JSON value; return the exit code."""
    from backstory.ledger.core.errors import BackstoryError

    code = _FAILED
    if _is_wrong_use(error):
        code, message = 2, _wrong_use(error)
    elif isinstance(error, BackstoryError):
        code, message = error.exit_code, str(error)
    elif isinstance(error, OSError):
        where = f"read or write {error.filename}" if error.filename else "write the answer"
        message = f"cannot {where}: {error.strerror or error}; check the disk and the file's mode"
        if not error.filename:
            _drop_stdout()
    else:
        message = f"unexpected {type(error).__name__}: {error}; this is a bug in backstory: --debug shows where"
    line = one_line(message)
    with contextlib.suppress(OSError):
        write_message(line)
        if session is not None and session.debug:
            show_traceback(error)
    as_json = (
        "--json" in takewhile(lambda word: word != "--", words)
        if session is None
        else session.as_json and not session.answered
    )
    if as_json:
        with contextlib.suppress(OSError):
            write_json({"error": {"kind": type(error).__name__, "message": line, "exit": code}})
            sys.stdout.flush()
    return code


def _wrong_use(error: Exception) -> str:
    message = str(error.format_message()).replace("Value error, ", "")  # type: ignore[attr-defined]
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "backstory"
    return f"{message.rstrip('.')}; see `{path} --help`"


def _drop_stdout() -> None:
    """Redirect a broken standard output to nowhere, or the interpreter reports it again at exit."""
    with contextlib.suppress(OSError, ValueError):
        devnull = os.open(os.devnull, os.O_WRONLY)
        os.dup2(devnull, sys.stdout.fileno())
        os.close(devnull)
