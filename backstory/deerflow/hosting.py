"""Hosted home: the Backstory home of a DeerFlow process, with the host's model and callbacks."""

from __future__ import annotations

import contextlib
import functools
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from backstory.config.host_file import DEERFLOW, host_file_of, write_host_file
from backstory.config.model_factory import as_model
from backstory.deerflow.agent_markers import AgentMarkers
from backstory.deerflow.config import Configured
from backstory.deerflow.home_import import HomeImport, agents_in
from backstory.deerflow.memory import HostedMemory, PlainDocument
from backstory.deerflow.model_port import choose_model, describe_model
from backstory.deerflow.observers import CallObserver, Hooks, RunTraces, hook_guarded
from backstory.home import Backstory
from backstory.integrations.identity import present_config
from backstory.ledger.concurrency.forks import ForkLock, start_thread
from backstory.ledger.core.errors import BackstoryError, UsageError
from backstory.ledger.core.events import Event
from backstory.ledger.core.sanitize import bounded_name
from backstory.ledger.core.scope import Scope, name_text
from backstory.ledger.messages import KeepHidden
from backstory.lifecycle.maintenance import replace_beyond_damage
from backstory.operations.recording import consider_warned
from backstory.outbox.fail_safe import FailSafeMemory
from backstory.worker import Worker

_log = logging.getLogger(__name__)

_DEFAULT_AGENT = "__default__"
"""DeerFlow's name for no agent in particular."""
_LEAD_AGENT = "lead"
"""The actor's name of the agent without a name."""
_DELETED = "deerflow:agent-deleted"
"""The actor of the clear that follows the deletion of an agent."""
_TAKING_UP_SECONDS = 60.0
"""How often it looks for turns that other processes recorded, and that stay pending where such a process has died."""
_CLOSING_SECONDS = 5.0
_WARMING_SECONDS = 4.0


class Hosting:
    """A home opened for a host, with its hooks. Safe for threads. A closed one opens again on the next use."""

    def __init__(self, configured: Configured, hooks: Hooks) -> None:
        self._configured = configured
        self._hooks = hooks
        self._deerflow = configured.deerflow
        self._traces = RunTraces(hooks)
        self._mutex = ForkLock()
        self._closed = False
        self._open()

    def _open(self) -> None:
        settings = self._configured.settings
        watch = CallObserver(self._hooks, self._traces, self._events)
        self._model = choose_model(self._configured, self._hooks, self._traces, watch)
        self.home = Backstory.open(
            self._configured.home,
            config=self._configured.stated,
            model=self._model,
            callbacks=[watch],
            # If the host offers no model, an API key in the environment must not be used instead.
            background=self._model is not None or as_model(None, settings) is None,
            actor="deerflow",
            mode=settings.mode,
            shutdown_flush_timeout_seconds=settings.shutdown_flush_timeout_seconds,
        )
        self._leave_configuration()
        if self._model is None and self._hooks.host_llm_factory is not None:
            # `choose_model` has warned that the host offers none.
            consider_warned(self.home.home)
        self._fail_safe = FailSafeMemory(self.home)
        self._imports = HomeImport(self.home)
        self._markers = AgentMarkers(self.home, settings.file_lock_timeout_seconds)
        # Turns of processes that have ended are pending, too.
        self._worker = Worker(self.home, poll_seconds=_TAKING_UP_SECONDS, gently=True)
        learns = self._model is not None and settings.mode == "middleware"
        self._working = start_thread("backstory-worker", self._worker.run) if learns else None

    def _leave_configuration(self) -> None:
        """Write what is in force here to the home, so that the command line works by it."""
        configured = self._configured
        try:
            model = describe_model(configured, self._model)
            content = host_file_of(DEERFLOW, configured.settings, configured.origin, model)
            write_host_file(configured.home, content)
        except Exception:  # noqa: BLE001 a description that fails must not stop the host
            _log.warning("the configuration cannot be left in %s for the command line", configured.home, exc_info=True)

    def _reopened(self) -> Backstory:
        """Return the home; open it again if it was closed, since a host may still send conversations then."""
        if self._closed:
            with self._mutex:
                if self._closed:
                    self._open()
                    self._closed = False
        return self.home

    # Memories.

    def memory(self, scope: Scope) -> HostedMemory:
        """Return a memory, after the import of DeerFlow's own memory; that of a deleted agent is cleared first."""
        home = self._reopened()
        self._settle(scope)
        self._import(scope)
        return HostedMemory.of(home.memory_of(scope))

    def memory_to_change(self, scope: Scope) -> HostedMemory:
        """Return a memory for a change of a single fact, by a person or by an agent's tool.

        DeerFlow does not say which. A tool is called in a run of a graph, or names its agent; the gateway and the
        embedded client, which serve people, do neither.
        """
        memory, run = self.memory(scope), present_config()
        if not run and scope.agent is None:
            return memory
        return memory.by_agent(f"agent:{scope.agent or _LEAD_AGENT}", _thread_of(run))

    def _import(self, scope: Scope) -> None:
        """Import DeerFlow's own files; the user's memory first, since an agent shows its summaries."""
        if self._deerflow is not None:
            self._imports.once(self._deerflow, scope)

    def _settle(self, scope: Scope) -> bool:
        return self._markers.settle(scope, lambda: HostedMemory.of(self.home.memory_of(scope).by(_DELETED)).clear())

    @contextlib.contextmanager
    def counted(self, scope: Scope, doing: str) -> Iterator[None]:
        """Count the faults of memory in a block for `status`, and raise them.

        Args:
            scope: The scope.
            doing: `inject` or `search`.
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
        """Record a conversation; a failure is counted, and the delivery goes to the outbox."""
        self._reopened()
        thread = bounded_name(str(thread))
        self._traces.note(scope, thread, trace_id)
        self._fail_safe.guarded(scope, "agent", functools.partial(self._settle, scope), otherwise=False)
        self._import(scope)
        hook = self._hooks.keep_hidden
        keep_hidden = None if hook is None else _guarded(hook)
        # What the agent is about to lose is a part of the conversation, whatever follows it.
        self._fail_safe.record(
            scope,
            thread,
            messages,
            mode="conversation" if immediate else "branch",
            immediate=immediate,
            keep_hidden=keep_hidden,
        )

    def beyond_damage(
        self, scope: Scope, replace: Callable[[], PlainDocument], *, whole_user: bool = False
    ) -> PlainDocument:
        """Replace a memory, even if its logs are damaged: then these are repaired first.

        What is intact of them stays in force, so that its history can be read. The files as they were are moved aside,
        and `movedAside` of the document names them.

        Args:
            scope: The memory.
            replace: Replaces it and returns its document.
            whole_user: Whether this also concerns the user's agents.
        """
        home = self._reopened()
        document, moved = replace_beyond_damage(home, scope, replace, whole_user=whole_user)
        return {**document, "movedAside": list(moved)} if moved is not None else document

    def clear(self, scope: Scope) -> HostedMemory:
        """Clear the memory of an agent or, without an agent, all memories of a user."""
        self._reopened()
        everything = scope.agent is None
        if everything:
            for agent in self._agents_in_deerflow(scope):
                self._import(Scope(scope.user, agent))
        memory = self.memory(scope)
        memory.clear(all_agents=everything)
        return memory

    def _agents_in_deerflow(self, user: Scope) -> tuple[str, ...]:
        source = self._deerflow
        if source is None:
            return ()
        look = functools.partial(agents_in, source, user.user)
        return self._fail_safe.guarded(user, "import", look, otherwise=())

    def _events(self, scope: Scope, seq: int) -> Sequence[Event]:
        found = self.home.memory_of(scope).log(since=str(seq))
        return found[-1].events if found and found[-1].seq == seq else ()

    # The process.

    def warm(self) -> bool:
        """Load the vocabulary that counts tokens; return False if it is configured and not available."""
        counting: str = self._configured.settings.token_counting
        return counting != "tiktoken" or self._reopened().warm(_WARMING_SECONDS) != "estimate"

    def resumed(self) -> bool:
        """Wait until every memory with pending turns from an earlier process is scheduled again."""
        self._wait_for_worker(None)
        return True

    def _wait_for_worker(self, timeout: float | None) -> None:
        if self._working is not None:
            self._worker.has_begun.wait(timeout)

    def flush(self, timeout: float) -> bool:
        """Extract from all pending turns; return whether none is left within `timeout` seconds."""
        return self._closed or _within(timeout, "backstory-flush", self._drain) or False

    def _drain(self, until: float) -> bool:
        def left() -> float:
            return max(0.0, until - time.monotonic())

        self._wait_for_worker(left() / 2)
        delivered = self._fail_safe.flush(left() / 2)
        # The process ends, and no person asks: words that may still be answered are left to the next one.
        # What failed is parked, and what no model extracts waits for one: neither would end with more time.
        flushed = self.home.flush(left(), unanswered=False)
        return delivered and not flushed.unfinished

    def close(self) -> None:
        """Close the home until its next use; pending turns stay on disk."""
        with self._mutex:
            if self._closed:
                return
            # Another thread may open the home again as soon as the lock is free, so close the one that was open.
            home, model, working = self.home, self._model, self._working
            self._worker.stop()
            self._closed = True

        def close(until: float) -> bool:
            if working is not None:
                working.join(max(0.0, until - time.monotonic()))
            home.close()
            if model is not None:
                model.close()
            return True

        if _within(_CLOSING_SECONDS, "backstory-close", close) is None:
            _log.warning("%s is not closed after %g seconds; what was recorded is on disk", home.home, _CLOSING_SECONDS)


def scope_named(user: str | None, agent: str | None) -> Scope:
    """Return the scope of DeerFlow's names; agent names are not case-sensitive.

    Raises:
        ScopeError: A name is invalid.
    """
    name = name_text("agent name", agent)
    return Scope.of(user, None if name in (None, "", _DEFAULT_AGENT) else name.lower())


def _thread_of(run: Mapping[str, object]) -> str | None:
    configurable = run.get("configurable")
    thread = configurable.get("thread_id") if isinstance(configurable, Mapping) else None
    return None if thread in (None, "") else bounded_name(str(thread))


def _guarded(keep_hidden: KeepHidden) -> KeepHidden:
    def kept(additional: Mapping[str, object]) -> bool:
        keeps = False
        with hook_guarded("should_keep_hidden_message", "the message stays hidden"):
            keeps = bool(keep_hidden(additional))
        return keeps  # noqa: RET504 the block goes on after an error

    return kept


def _within(timeout: float, name: str, work: Callable[[float], bool]) -> bool | None:
    """Run `work` in a thread with its deadline on the monotonic clock; return None if it misses that."""
    until = time.monotonic() + timeout
    outcome: list[bool] = []

    def run() -> None:
        try:
            outcome.append(work(until))
        except Exception:  # noqa: BLE001 an error must not stop the host's shutdown
            _log.exception("%s failed", name)
            outcome.append(False)

    thread = threading.Thread(target=run, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError:
        # The interpreter is exiting and starts no more threads. Each step of `work` has its own timeout.
        run()
    else:
        thread.join(timeout)
    return outcome[0] if outcome else None
