"""A PostgreSQL server of one's own, and a PgBouncer before it, for tests and measurements; they end with the process.

The server keeps its files in a folder that is deleted afterwards. It refuses to run as root, so root starts it as the
user `postgres`, whom the distribution's package makes.
"""

from __future__ import annotations

import atexit
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

__all__ = ["NotInstalledError", "Pooler", "Reached", "Server", "make_data", "program"]

_WAIT_SECONDS = 60.0
_PLACES = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"])
_QUICK = {"fsync": "off", "full_page_writes": "off", "synchronous_commit": "on", "shared_buffers": "32MB"}


class NotInstalledError(Exception):
    """A program that is needed is not on this machine."""


def program(name: str) -> str:
    """Return where a program of PostgreSQL's is: in the folder that POSTGRES_BIN names, or the newest that there is."""
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name), reverse=True)
    places = [os.environ.get("POSTGRES_BIN"), *map(str, installed), _PLACES]
    found = shutil.which(name, path=os.pathsep.join(filter(None, places)))
    if found is None:
        raise NotInstalledError(f"{name} is not installed: apt-get install postgresql pgbouncer")
    return found


def _as_server() -> dict[str, Any]:
    """Return what has root start a process as the server's user."""
    return {} if os.geteuid() else {"user": "postgres", "group": "postgres", "extra_groups": []}


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _owned_by_server(path: Path) -> None:
    if not os.geteuid():
        user = pwd.getpwnam("postgres")
        os.chown(path, user.pw_uid, user.pw_gid)


def _make(maker: str, data: Path, *options: str) -> None:
    subprocess.run(
        [program(maker), "--pgdata", str(data), *options], **_as_server(), check=True, capture_output=True, cwd="/",
    )  # fmt: skip


def make_data(data: Path) -> None:
    """Make the data of a server that was never started; a server can begin with a copy of it."""
    data.mkdir(mode=0o700)
    _owned_by_server(data)
    _make("initdb", data, "--username", "owner", "--auth", "trust", "--no-sync", "--encoding", "UTF8", "--locale",
          "C.UTF-8", "--wal-segsize", "1")  # fmt: skip


class Reached:
    """A server that runs, on a port, with its files in a folder."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder = folder
        self.port = port
        self.data = folder / "data"

    def url(self, database: str = "postgres", user: str = "owner", port: int | None = None) -> str:
        return f"postgresql://{user}@127.0.0.1:{port or self.port}/{database}"

    def create(self, database: str) -> str:
        """Make a database, and return its address."""
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(database)))
        return self.url(database)


class Server(Reached):
    """A server in a new folder, on a free port; `settings` are lines of its configuration.

    Unless `durable`, it syncs nothing. `within` is where its folder is made. It begins with a copy of the `template`
    that `make_data` has made; with a `primary` it is a standby of that server, with the same settings. It ends with
    this process, unless it `stays`.
    """

    def __init__(
        self,
        *,
        durable: bool = False,
        within: Path | None = None,
        template: Path | None = None,
        primary: Server | None = None,
        stays: bool = False,
        **settings: str,
    ) -> None:
        program("initdb")
        memory = Path("/dev/shm")
        if within is None and not durable and os.access(memory, os.W_OK):
            within = memory
        super().__init__(Path(tempfile.mkdtemp(prefix="backstory-postgres-", dir=within)), _free_port())
        _owned_by_server(self.folder)
        self._process: subprocess.Popen[bytes] | None = None
        if not stays:
            atexit.register(self.remove, os.getpid())
        stated = {"max_connections": "200", **({} if durable else _QUICK), **settings}
        if primary is not None:
            _make(
                "pg_basebackup", self.data, "--dbname", primary.url(), "--write-recovery-conf", "--checkpoint", "fast"
            )
            stated = settings
        elif template is not None:
            subprocess.run(["cp", "-a", template, self.data], check=True)
        else:
            make_data(self.data)
        with (self.data / "postgresql.auto.conf").open("a", encoding="utf-8") as file:
            file.writelines(f"{key} = '{value}'\n" for key, value in stated.items())
        self.start()

    def start(self) -> None:
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [program("postgres"), "-D", str(self.data), "-p", str(self.port), "-h", "127.0.0.1", "-k", ""],
                **_as_server(), stdout=log, stderr=log, cwd="/", start_new_session=True,
            )  # fmt: skip
        _until_it_answers(self.url(), self._process, self.folder / "log")

    def start_if_ended(self) -> None:
        """Wait until the server answers; one that ends itself meanwhile, or has, is started again."""
        assert self._process is not None
        try:
            _until_it_answers(self.url(), self._process, self.folder / "log")
        except RuntimeError:
            if self._process.poll() is None:
                raise
            self.start()

    @property
    def pid(self) -> int:
        """The process id of the postmaster."""
        assert self._process is not None
        return self._process.pid

    @property
    def pids(self) -> list[int]:
        """The process ids of the postmaster and its children."""
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text("utf-8").split()
        return [self.pid, *map(int, children)]

    def kill(self) -> None:
        """Take all its processes away at once, without any notice."""
        # Stopped, it starts no child that would outlive it and keep its memory from the next server.
        os.kill(self.pid, signal.SIGSTOP)
        pids = self.pids
        for process in pids:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        if self._process is not None:
            self._process.wait(_WAIT_SECONDS)
            self._process = None
        end = time.monotonic() + _WAIT_SECONDS
        while any(_runs(process) for process in pids) and time.monotonic() < end:
            time.sleep(0.005)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Stop all its processes for the length of the block, as a machine that is cut off."""
        pids = self.pids
        for process in pids:
            os.kill(process, signal.SIGSTOP)
        try:
            yield
        finally:
            for process in pids:
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGCONT)

    def stop(self, number: signal.Signals = signal.SIGINT) -> None:
        """End the server: SIGINT disconnects all, SIGQUIT ends it as a crash would."""
        if self._process is not None:
            os.kill(self.pid, number)
            # A test may have stopped it.
            os.kill(self.pid, signal.SIGCONT)
            self._process.wait(_WAIT_SECONDS)
            self._process = None

    def remove(self, process: int | None = None) -> None:
        if process in (None, os.getpid()):
            if self._process is not None and self._process.poll() is None:
                self.stop(signal.SIGQUIT)
            shutil.rmtree(self.folder, ignore_errors=True)


class Pooler:
    """A PgBouncer before a server that lends connections by the transaction. Unless it `stays`, it ends with us."""

    def __init__(self, server: Reached, *, stays: bool = False) -> None:
        bouncer = program("pgbouncer")
        self.port = _free_port()
        folder = server.folder / "pooler"
        folder.mkdir()
        users = folder / "users"
        users.write_text('"owner" ""\n', encoding="utf-8")
        settings = folder / "pgbouncer.ini"
        settings.write_text(
            f"[databases]\n* = host=127.0.0.1 port={server.port}\n[pgbouncer]\nlisten_addr = 127.0.0.1\n"
            f"listen_port = {self.port}\nunix_socket_dir =\nauth_type = trust\nauth_file = {users}\n"
            "pool_mode = transaction\ndefault_pool_size = 40\nmax_client_conn = 500\nquery_wait_timeout = 10\n",
            encoding="utf-8",
        )
        for path in (folder, users, settings):
            _owned_by_server(path)
        with (server.folder / "pooler.log").open("ab") as log:
            self._process = subprocess.Popen(
                [bouncer, str(settings)], **_as_server(), stdout=log, stderr=log, cwd="/", start_new_session=True
            )
        if not stays:
            atexit.register(self.stop, os.getpid())
        _until_it_answers(server.url(port=self.port), self._process, server.folder / "pooler.log")

    @property
    def pid(self) -> int:
        return self._process.pid

    def stop(self, process: int | None = None) -> None:
        if process in (None, os.getpid()) and self._process.poll() is None:
            # It keeps nothing that is worth an orderly end.
            self._process.kill()
            self._process.wait(_WAIT_SECONDS)


def _runs(process: int) -> bool:
    """Whether a process is there and not only waits to be reaped."""
    try:
        state = Path(f"/proc/{process}/stat").read_text("utf-8").rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in ("Z", "X")


def _until_it_answers(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + _WAIT_SECONDS
    while True:
        try:
            psycopg.connect(url, connect_timeout=5).close()
        except psycopg.OperationalError:
            if process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"the server does not start: {log.read_text('utf-8')[-2000:]}") from None
            time.sleep(0.02)
        else:
            return
