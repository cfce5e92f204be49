"""How everything ends: each error becomes one line and an exit code, whatever was being done."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Any, NoReturn

import typer
from typer.core import TyperGroup

from backstory.cli.pages.page import aside, one_line, show_traceback, write_json
from backstory.cli.session import Session

__all__ = ["Root"]

_INTERRUPTED = 130
_NOBODY_READS = 141
_CANNOT = 3
_GLOBAL = ("--home", "--user", "--agent", "--config", "--store", "--json", "--debug")


class Root(TyperGroup):
    """The verbs, and what becomes of an error in any of them."""

    def main(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Run, and leave with the exit code."""
        kwargs |= {"standalone_mode": False, "prog_name": "backstory"}
        given = kwargs.get("args") or (args[0] if args else None)
        words = list(sys.argv[1:] if given is None else given)
        try:
            code = super().main(*args, **kwargs)
        except Exception as error:  # noqa: BLE001 nothing may end in a traceback
            code = _tell(error, None, words)
        sys.exit(code if isinstance(code, int) else 0)

    def invoke(self, ctx: Any) -> None:
        """Run the verb; what it raises is told here, where the invocation's options are known."""
        try:
            super().invoke(ctx)
            sys.stdout.flush()
        except typer.Exit:
            raise
        except KeyboardInterrupt:
            raise typer.Exit(_INTERRUPTED) from None
        except BrokenPipeError:
            _drop_stdout()
            raise typer.Exit(_NOBODY_READS) from None
        except Exception as error:
            if _is_wrong_use(error):
                raise
            raise typer.Exit(_tell(error, ctx.obj, [])) from error


def _is_wrong_use(error: Exception) -> bool:
    """Whether the parser raised it; newer typers bring their own, older ones click's."""
    return hasattr(error, "format_message") and hasattr(error, "exit_code")


def _tell(error: Exception, session: Session | None, words: list[str]) -> int:
    """Say in one line what happened; returns the exit code."""
    from backstory.cli.failure import Failure
    from backstory.ledger.core.errors import BackstoryError

    code = _CANNOT
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
        message = f"unexpected {type(error).__name__}: {error}; this is a fault of ours: --debug shows where"
    line = one_line(message)
    with contextlib.suppress(OSError):
        aside(line)
        if session is not None and session.debug:
            show_traceback(error)
    as_json = "--json" in words if session is None else session.as_json and not session.answered
    if as_json:
        with contextlib.suppress(OSError):
            write_json(Failure.of(type(error).__name__, line, code))
            sys.stdout.flush()
    return code


def _wrong_use(error: Exception) -> str:
    message = str(error.format_message()).replace("Value error, ", "")  # type: ignore[attr-defined]
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "backstory"
    option = getattr(error, "option_name", None)
    if option in _GLOBAL and context is not None and context.parent is not None:
        return f"{option} stands before the verb: `backstory {option} … {context.info_name} …`"
    return f"{message.rstrip('.')}; see `{path} --help`"


def _drop_stdout() -> None:
    """Let go of a standard output that takes nothing, or the interpreter complains about it once more at its end."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
