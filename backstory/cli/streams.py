"""Standard output and error of an invocation: their encoding, and log records as lines."""

from __future__ import annotations

import logging
import sys

import typer

from backstory.cli.pages.page import show_traceback, write_message
from backstory.cli.session import Session

_REPEATED = "psycopg.pool"
"""Logger of each attempt to connect, of which there are many a second; the error of the verb is about the last one."""


def prepare_streams(ctx: typer.Context, session: Session) -> None:
    """Set the encoding and the logging that the global options ask for, until the context closes."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(encoding="utf-8" if session.as_json else None, errors="replace")
    root, logger = logging.getLogger(), logging.getLogger("backstory")
    known = next((handler for handler in root.handlers if isinstance(handler, _OneLineHandler)), None)
    if known is not None:
        # The demo runs verbs inside a verb, and an option after the verb is known late.
        if session.debug:
            known.debug = True
            logger.setLevel(logging.DEBUG)
        return
    handler = _OneLineHandler(debug=session.debug)
    repeated = logging.getLogger(_REPEATED)
    before, before_repeated = logger.level, repeated.level
    root.addHandler(handler)
    logger.setLevel(logging.DEBUG if session.debug else logging.WARNING)
    repeated.setLevel(logging.NOTSET if session.debug else logging.ERROR)

    def restore() -> None:
        root.removeHandler(handler)
        logger.setLevel(before)
        repeated.setLevel(before_repeated)

    ctx.call_on_close(restore)


class _OneLineHandler(logging.Handler):
    """Writes each log record as one line; with `debug` also the traceback of its error."""

    def __init__(self, *, debug: bool) -> None:
        super().__init__()
        self.debug = debug

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        text = f"{record.getMessage()}: {error}" if error is not None else record.getMessage()
        write_message(f"{record.levelname.lower()}: {text}")
        if error is not None and self.debug:
            show_traceback(error)
