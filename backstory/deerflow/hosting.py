"""The home that DeerFlow's memory lies in: opened once, and never in the way of an agent's answer."""

from __future__ import annotations

import contextlib
import functools
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from backstory.config.model_factory import as_model
from backstory.deerflow.config import Configured
from backstory.deerflow.home_import import agents_in, settle
from backstory.deerflow.hooks import Hooks
from backstory.deerflow.memory import HostedMemory
from backstory.deerflow.model_selection import choose_model
from backstory.deerflow.observers import Traces, Watch
from backstory.home import Backstory
from backstory.ledger.concurrency.forks import ForkLock
from backstory.ledger.core.errors import BackstoryError, UsageError
from backstory.ledger.core.events import Event
from backstory.ledger.core.sanitize import bounded_name
from backstory.ledger.core.scope import Scope
from backstory.ledger.messages import KeepHidden
from backstory.outbox.fail_safe import FailSafeMemory

__all__ = ["Hosting", "scope_named"]

_log = logging.getLogger(__name__)

_DEFAULT_AGENT = "__default__"
"""DeerFlow's name for no agent in particular."""
_CLOSING_SECONDS = 5.0
_WARMING_SECONDS = 4.0


class Hosting:
    """A home opened for a host, with its hooks; safe for threads. One that was closed opens again when it is used."""

    def __init__(self, configured: Configured, hooks: Hooks) -> None:
        self._configured = configured
        self._hooks = hooks
        self._deerflow = configured.deerflow
        self._keep_hidden = None if hooks.keep_hidden is None else _guarded(hooks.keep_hidden)
        self._traces = Traces(hooks)
        self._mutex = ForkLock()
        self._closed = False
        self._open()

    def _open(self) -> None:
        settings = self._configured.settings
        watch = Watch(self._hooks, self._traces, self._events)
        self._model = choose_model(self._configured, self._hooks, self._traces, watch)
        self.home = Backstory.open(
            self._configured.home,
            config=self._configured.stated,
            model=self._model,
            callbacks=[watch],
            # A key in the environment is not to be used where the host has no model to offer.
            background=self._model is not None or as_model(None, settings) is None,
            actor="deerflow",
            mode=settings.mode,
            shutdown_flush_timeout_seconds=settings.shutdown_flush_timeout_seconds,
        )
        self._deliveries = FailSafeMemory(self.home)
        self._stopping = threading.Event()
        self._resuming = threading.Thread(target=self._resume, name="backstory-resume", daemon=True)
        self._resuming.start()

    def _reopened(self) -> Backstory:
        """The home; what comes after the end of a host's life is taken all the same, as the host hands it over."""
        if self._closed:
            with self._mutex:
                if self._closed:
                    self._open()
                    self._closed = False
        return self.home

    # Memories.

    def memory(self, scope: Scope, *, in_hands: bool = False) -> HostedMemory:
        """Return a memory; what DeerFlow itself remembered of it is there from the first use on.

        `in_hands` means that facts of it are to be changed: where an agent is named it is the agent that does so, for
        DeerFlow's gateway, through which people do, never names one.
        """
        home = self._reopened()
        self._bring_over(scope)
        memory = home.memory(scope.user, scope.agent)
        return HostedMemory.of(memory.by(f"agent:{scope.agent}") if in_hands and scope.agent is not None else memory)

    def _bring_over(self, scope: Scope) -> None:
        """Take over what DeerFlow's own files hold; a fault is counted, and one that costs time is not met again soon.

        An agent shows its user's summaries, so those come first.
        """
        source = self._deerflow
        if source is None:
            return
        for one in (Scope(scope.user), scope)[scope.agent is None :]:
            self._deliveries.guarded(one, "import", functools.partial(settle, self.home, source, one), otherwise=False)

    @contextlib.contextmanager
    def counted(self, scope: Scope, doing: str) -> Iterator[None]:
        """Count what fails of memory's own in a block, so that `status` tells of it; the error is raised all the same.

        `doing` is `inject` or `search`: an agent goes on without either.
        """
        try:
            yield
        except (BackstoryError, OSError) as error:
            if not isinstance(error, UsageError):
                self.home.faults.note(scope, doing, error)
            raise
        self.home.faults.recovered(scope, doing)

    def record(
        self,
        scope: Scope,
        thread: str,
        messages: Sequence[object],
        *,
        trace_id: str | None = None,
        immediate: bool = False,
    ) -> None:
        """Keep what was said; where memory fails it is counted, and the words wait."""
        self._reopened()
        thread = bounded_name(str(thread))
        self._traces.note(scope, thread, trace_id)
        self._bring_over(scope)
        self._deliveries.record(scope, thread, messages, immediate=immediate, keep_hidden=self._keep_hidden)

    def clear(self, scope: Scope) -> HostedMemory:
        """Empty one agent's memory or, without one, all that a user owns; what is still in DeerFlow's files, too."""
        self._reopened()
        everything = scope.agent is None
        if everything:
            for agent in self._agents_in_deerflow(scope):
                self._bring_over(Scope(scope.user, agent))
        memory = self.memory(scope)
        memory.clear(all_agents=everything)
        return memory

    def _agents_in_deerflow(self, user: Scope) -> tuple[str, ...]:
        source = self._deerflow
        if source is None:
            return ()
        look = functools.partial(agents_in, source, user.user)
        return self._deliveries.guarded(user, "import", look, otherwise=())

    def _events(self, scope: Scope, seq: int) -> Sequence[Event]:
        found = self.home.memory(scope.user, scope.agent).log(since=str(seq))
        return found[-1].events if found and found[-1].seq == seq else ()

    # The process.

    def warm(self) -> bool:
        """Load what counts tokens; False where it is wanted and no vocabulary is at hand."""
        counting: str = self._configured.settings.token_counting
        return counting != "tiktoken" or self._reopened().warm(_WARMING_SECONDS) != "estimate"

    def resumed(self) -> bool:
        """Wait until every memory with words pending from before is looked after again."""
        self._resuming.join()
        return True

    def _resume(self) -> None:
        """Look after what a former process left pending, also of people who do not come back."""
        if self._model is None or self._configured.settings.mode != "middleware":
            return
        home, stopping = self.home, self._stopping
        try:
            owners = home.owners()
        except (BackstoryError, OSError) as error:
            _log.warning("what is pending from before waits until its memory is asked for: %s", error)
            return
        for owner in owners:
            begun = time.monotonic()
            try:
                home.memory(owner.user, owner.agent)
            except (BackstoryError, OSError) as error:
                _log.warning("%s: what is pending waits until its memory is asked for: %s", owner, error)
            # There may be any number of people, and those who are here come first.
            if stopping.wait(time.monotonic() - begun):
                return

    def flush(self, timeout: float) -> bool:
        """Learn from what is pending; True when nothing is left within `timeout` seconds, whatever hangs."""
        return self._closed or _within(timeout, "backstory-flush", self._drain) or False

    def _drain(self, until: float) -> bool:
        def left() -> float:
            return max(0.0, until - time.monotonic())

        self._resuming.join(left() / 2)
        delivered = self._deliveries.flush(left() / 2)
        return self.home.flush(left()) and delivered

    def close(self) -> None:
        """Let go of the home, until it is used again; what is not learned from yet stays pending on disk."""
        with self._mutex:
            if self._closed:
                return
            # Somebody may open it again as soon as the lock is free: what is closed is what was open until now.
            home, model, resuming = self.home, self._model, self._resuming
            self._stopping.set()
            self._closed = True

        def close(until: float) -> bool:
            resuming.join(max(0.0, until - time.monotonic()))
            home.close()
            if model is not None:
                model.close()
            return True

        if _within(_CLOSING_SECONDS, "backstory-close", close) is None:
            _log.warning("%s is not closed after %g seconds; what was recorded is on disk", home.home, _CLOSING_SECONDS)


def scope_named(user: str | None, agent: str | None) -> Scope:
    """Return whose memory DeerFlow means; agents' names mean the same in any case.

    Raises:
        ScopeError: a name that cannot be one.
    """
    return Scope.of(user, None if agent in (None, "", _DEFAULT_AGENT) else str(agent).lower())


def _guarded(keep_hidden: KeepHidden) -> KeepHidden:
    def kept(additional: Mapping[str, object]) -> bool:
        try:
            return bool(keep_hidden(additional))
        except Exception:  # noqa: BLE001 a host's hook must not be able to harm memory
            _log.exception("the host's should_keep_hidden_message failed; the message stays hidden")
            return False

    return kept


def _within(timeout: float, name: str, work: Callable[[float], bool]) -> bool | None:
    """Run something in a thread of its own, told the moment by which it is to be done; None when it is not."""
    until = time.monotonic() + timeout
    outcome: list[bool] = []

    def run() -> None:
        try:
            outcome.append(work(until))
        except Exception:  # noqa: BLE001 the host is shutting down, and goes on doing so
            _log.exception("%s failed", name)
            outcome.append(False)

    thread = threading.Thread(target=run, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError:
        # The interpreter is going down and starts no threads any more; each step within has limits of its own.
        run()
    else:
        thread.join(timeout)
    return outcome[0] if outcome else None
