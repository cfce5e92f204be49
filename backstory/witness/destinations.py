"""Destinations of witnessed heads: a file, a command, or an http(s) address.

Each takes a batch of lines completely, or raises an error. Logs and errors name a destination without user name,
password, path of a URL, query and arguments, since any of these may be a secret.
"""

from __future__ import annotations

import errno
import os
import shlex
import stat
from pathlib import Path
from typing import Protocol
from urllib.parse import SplitResult, unquote, urlsplit

from backstory.ledger.core.errors import WitnessError
from backstory.ledger.disk.files import refused, sync, sync_folder, write_whole

COMMAND = "command:"
SECONDS = 5.0
"""Maximum time of a command or a URL for one batch."""

_SUCCESS = range(200, 300)
_REDIRECTS = range(300, 400)


class Destination(Protocol):
    """A destination to which heads are appended."""

    @property
    def name(self) -> str:
        """The name for logs and errors, without secrets."""

    def append(self, lines: bytes) -> None:
        """Append whole lines durably.

        Raises:
            WitnessError: The lines are not appended, or that is not known.
        """


def destination_of(witness: str, *, seconds: float = SECONDS) -> Destination:
    """Return the destination that the key `witness` names.

    Args:
        witness: An absolute path, `command:` and a command line, or an http or https URL.
        seconds: Maximum time of a command or a URL.

    Raises:
        ValueError: It names no destination; the message does not quote it.
    """
    if witness.startswith(COMMAND):
        return CommandWitness(_words(witness.removeprefix(COMMAND)), seconds)
    scheme = witness.partition("://")[0] if "://" in witness else ""
    if scheme.lower() in ("http", "https"):
        return UrlWitness(_address(witness), seconds)
    path = Path(witness)
    if witness.startswith("~"):
        try:
            path = path.expanduser()
        except RuntimeError as error:
            raise ValueError("it names the home folder of an unknown user") from error
    if scheme or not path.is_absolute() or "\0" in witness:
        raise ValueError("it must be an absolute path, command:… or an http(s) address")
    return FileWitness(path)


def _words(command: str) -> list[str]:
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise ValueError("its command line has an unclosed quotation mark") from error
    if not words:
        raise ValueError("it must have a command: write command:PROGRAM ARGUMENT …")
    return words


def _address(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        named = bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        named = False
    if not named or any(char.isspace() for char in url):
        raise ValueError("it must be a valid http(s) address: write https://HOST/PATH")
    return parts


class FileWitness:
    """A file with mode 0600, to which several processes may append."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = str(path)

    def append(self, lines: bytes) -> None:
        """Append with one write, and sync. A missing folder is not created, since its disk may not be mounted."""
        try:
            born = not self.path.exists()
            # O_RDWR does not wait for a reader if the file is a pipe.
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            try:
                write_whole(descriptor, b"\n" + lines if _is_torn(descriptor) else lines)
                sync(descriptor)
            except OSError as error:
                # A pipe or a device cannot be synced.
                if error.errno != errno.EINVAL:
                    raise
            finally:
                os.close(descriptor)
            if born:
                sync_folder(self.path.parent)
        except FileNotFoundError as error:
            text = f"cannot append heads to {self.path}: its folder is missing; mount its disk, or create the folder"
            raise WitnessError(text, kind="FileNotFoundError") from error
        except OSError as error:
            raise WitnessError(str(refused(self.path, "append heads to", error)), kind=type(error).__name__) from error


def _is_torn(descriptor: int) -> bool:
    """Whether the last line is incomplete, so that the next line must begin with a line break."""
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or not status.st_size:
        return False
    return os.pread(descriptor, 1, status.st_size - 1) != b"\n"


class CommandWitness:
    """A command that gets the lines on standard input, without a shell. Exit code 0 confirms them."""

    def __init__(self, words: list[str], seconds: float) -> None:
        self._words = words
        self._seconds = seconds
        self.program = words[0]
        self.name = f"{COMMAND}{self.program}"

    def append(self, lines: bytes) -> None:
        """Run the command with a timeout."""
        import signal
        import subprocess

        try:
            process = subprocess.Popen(  # noqa: S603 it is the user's own command, and there is no shell
                self._words,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except (OSError, RuntimeError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise WitnessError(f"{self.name} cannot be run: {reason}", kind=type(error).__name__) from error
        try:
            process.communicate(lines, timeout=self._seconds)
        except subprocess.TimeoutExpired:
            self._kill(process.pid, signal.SIGKILL)
            process.communicate()
            # No cause, since errors of subprocess quote the arguments.
            raise WitnessError(
                f"{self.name} took longer than {self._seconds:g} s and was ended", kind="TimeoutExpired"
            ) from None
        except BaseException:
            self._kill(process.pid, signal.SIGKILL)
            process.wait()
            raise
        if process.returncode:
            raise WitnessError(
                f"{self.name} ended with exit code {process.returncode}: run it by hand to see why", kind="ExitCode"
            )

    @staticmethod
    def _kill(pid: int, signal: int) -> None:
        """End the process and its children."""
        import contextlib

        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal)


class UrlWitness:
    """A URL to which the lines are posted. A status from 200 to 299 confirms them.

    It uses the standard library's client, which follows no redirects and does not log the URL.
    """

    def __init__(self, parts: SplitResult, seconds: float) -> None:
        self._parts = parts
        self._seconds = seconds

    @property
    def name(self) -> str:
        """See `Destination.name`."""
        parts = self._parts
        port = f":{parts.port}" if parts.port else ""
        host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
        # The path of a webhook is a secret.
        path = "/…" if parts.path.strip("/") else parts.path
        return f"{parts.scheme}://{host}{port}{path}"

    def append(self, lines: bytes) -> None:
        """Post the lines as application/x-ndjson."""
        from http.client import HTTPConnection, HTTPException, HTTPSConnection

        target = self._parts.path or "/"
        if self._parts.query:
            target = f"{target}?{self._parts.query}"
        kind = HTTPSConnection if self._parts.scheme == "https" else HTTPConnection
        connection = kind(self._parts.hostname or "", self._parts.port, timeout=self._seconds)
        try:
            connection.request("POST", target, lines, self._headers())
            status = connection.getresponse().status
        except (OSError, HTTPException, ValueError) as error:
            # No cause, since errors of the library may quote the whole URL.
            reason = error.strerror if isinstance(error, OSError) and error.strerror else type(error).__name__
            raise WitnessError(f"{self.name} cannot be reached: {reason}", kind=type(error).__name__) from None
        finally:
            connection.close()
        if status in _REDIRECTS:
            raise WitnessError(
                f"{self.name} answered {status}, a redirect, which is not followed: name the address it leads to",
                kind="Redirect",
            )
        if status not in _SUCCESS:
            raise WitnessError(f"{self.name} answered {status}", kind="HTTPStatus")

    def _headers(self) -> dict[str, str]:
        headers = {"Content-Type": "application/x-ndjson", "User-Agent": "backstory"}
        if self._parts.username is not None:
            import base64

            pair = f"{unquote(self._parts.username)}:{unquote(self._parts.password or '')}"
            headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        return headers
