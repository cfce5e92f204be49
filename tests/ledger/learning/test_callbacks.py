"""Whoever watches the learning is told what happens, never what was said, and cannot harm it."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from fakes import PATIENCE, CountingSalts, FakeClock, Gate, ScriptedModel, exchange, open_home, reply, updater_on

from backstory.ledger.concurrency.clock import SystemClock
from backstory.ledger.core.errors import ConfigError, ModelRejectedError, ModelUnavailableError, NoModelError
from backstory.ledger.core.events import TurnRange
from backstory.ledger.core.scope import Scope
from backstory.ledger.engines.jsonl.store import JsonlStore
from backstory.ledger.extraction.models.model import Answer, Prompt, Usage
from backstory.ledger.extraction.models.recorded import RecordedReply
from backstory.ledger.learning import observing
from backstory.ledger.learning.updater import Job
from backstory.ledger.log.writer import Writer
from backstory.ledger.messages import keep, read_message
from backstory.otel import CallEnded, CallStarted, Observer, Refusal, UpdateSettled

PAGE = (Path(__file__).parents[3] / "docs" / "how-to" / "observability.md").read_text(encoding="utf-8")

Told = CallStarted | CallEnded | UpdateSettled


class Watcher(Observer):
    """Keeps all it is told, in order, and in which thread."""

    def __init__(self) -> None:
        self.told: list[Told] = []
        self.threads: set[int] = set()

    def _keep(self, what: Told) -> None:
        self.told.append(what)
        self.threads.add(threading.get_ident())

    def on_call_started(self, call: CallStarted) -> None:
        self._keep(call)

    def on_call_ended(self, ended: CallEnded) -> None:
        self._keep(ended)

    def on_update(self, update: UpdateSettled) -> None:
        self._keep(update)

    @property
    def started(self) -> list[CallStarted]:
        return [what for what in self.told if isinstance(what, CallStarted)]

    @property
    def ended(self) -> list[CallEnded]:
        return [what for what in self.told if isinstance(what, CallEnded)]

    @property
    def updates(self) -> list[UpdateSettled]:
        return [what for what in self.told if isinstance(what, UpdateSettled)]


class Scene:
    """A memory with one exchange pending, a scripted model, and somebody who watches."""

    def __init__(self, home: Path, *script: object, **settings: object) -> None:
        self.clock = FakeClock()
        self.watcher = Watcher()
        self.model = ScriptedModel(*script)  # type: ignore[arg-type]
        settings = {"callbacks": [self.watcher], **settings}
        self.home = open_home(home, self.model, clock=self.clock, **settings)
        self.memory = self.home.memory("ada", "coder")
        self.memory.record("t", exchange("tea", 1))

    def learn(self) -> Watcher:
        self.memory.extract()
        return self.watcher


def taking(seconds: float, clock: FakeClock, said: str | Answer | Exception) -> Callable[[Prompt], str | Answer]:
    """A step that takes its time."""

    def think(prompt: Prompt) -> str | Answer:
        clock.advance(seconds)
        if isinstance(said, Exception):
            raise said
        return said

    return think


def after(meddle: Callable[[], object], text: str) -> Callable[[Prompt], str]:
    """A step during which something else happens."""

    def think(prompt: Prompt) -> str:
        meddle()
        return text

    return think


# Calls


def test_a_call_is_told_before_and_after_with_what_was_asked_and_what_came_back(tmp_path):
    scene = Scene(tmp_path)
    scene.model._script.append(taking(2.5, scene.clock, Answer(reply("Likes tea"), "served-model", Usage(110, 7))))
    watcher = scene.learn()
    (call,) = watcher.started
    assert (call.scope, call.thread, call.turns) == (Scope("ada", "coder"), "t", TurnRange(1, 2))
    assert (call.provider, call.model, call.attempt) == ("custom", "scripted", 1)
    (prompt,) = scene.model.prompts
    assert call.prompt == prompt.digest
    size = len(prompt.system + prompt.user)
    assert size / 8 < call.estimated_tokens < size / 2
    (ended,) = watcher.ended
    assert ended == CallEnded(call=call, seconds=2.5, model="served-model", tokens_in=110, tokens_out=7)
    assert ended.call is call
    assert [type(what) for what in watcher.told] == [CallStarted, CallEnded, UpdateSettled]


def test_a_call_is_told_of_before_it_is_made(tmp_path):
    scene = Scene(tmp_path)
    seen: list[Told] = []
    scene.model._script.append(after(lambda: seen.extend(scene.watcher.told), reply()))
    scene.learn()
    assert [type(what) for what in seen] == [CallStarted]


def test_every_attempt_is_a_call_of_its_own_and_the_pause_between_is_nobodys_time(tmp_path):
    scene = Scene(tmp_path)
    busy = ModelUnavailableError("busy", retry_after=40)
    scene.model._script += [taking(1, scene.clock, busy), taking(2, scene.clock, busy), taking(3, scene.clock, reply())]
    watcher = scene.learn()
    assert [call.attempt for call in watcher.started] == [1, 2, 3]
    assert [(ended.seconds, ended.error) for ended in watcher.ended] == [
        (1, "unavailable"),
        (2, "unavailable"),
        (3, None),
    ]
    assert [ended.call for ended in watcher.ended] == watcher.started
    assert [(update.outcome, update.attempts) for update in watcher.updates] == [("learned", 3)]


def test_turns_that_were_parked_go_on_counting_when_they_are_tried_again(tmp_path):
    scene = Scene(tmp_path, ModelRejectedError("no"), reply("Likes tea"))
    scene.learn()
    scene.memory.retry()
    assert [call.attempt for call in scene.watcher.started] == [1, 2]
    assert [(update.outcome, update.reason, update.attempts) for update in scene.watcher.updates] == [
        ("failed", "rejected", 1),
        ("learned", None, 2),
    ]


def test_an_error_is_told_by_the_name_of_what_lies_beneath(tmp_path):
    def fail(messages: list[dict[str, str]]) -> str:
        raise TimeoutError("after 30 s")

    watcher = Watcher()
    memory = open_home(tmp_path, fail, callbacks=[watcher], max_attempts=1).memory("ada")
    memory.record("t", exchange("tea"))
    memory.extract()
    (ended,) = watcher.ended
    assert (ended.error, ended.error_type, ended.model) == ("unavailable", "TimeoutError", None)
    assert ended.call.model == "fail"


def test_an_error_with_nothing_beneath_is_told_by_its_own_name(tmp_path):
    (ended,) = Scene(tmp_path, ModelRejectedError("no")).learn().ended
    assert (ended.error, ended.error_type) == ("rejected", "ModelRejectedError")


def test_a_call_that_a_person_broke_off_ended_too(tmp_path):
    scene = Scene(tmp_path, KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        scene.learn()
    assert [(ended.error, ended.error_type) for ended in scene.watcher.ended] == [("interrupted", "KeyboardInterrupt")]
    assert scene.watcher.updates == []


def test_a_bill_that_cannot_be_is_not_told(tmp_path):
    (ended,) = Scene(tmp_path, Answer(reply(), "m\ud800", Usage(-1, 2**80))).learn().ended
    assert (ended.tokens_in, ended.tokens_out, ended.model) == (None, None, "m\ufffd")


@pytest.mark.parametrize("usage", [Usage(True, False), True, "11 tokens", {"input": 11}, [11]])
def test_a_bill_of_another_shape_tells_nothing_and_harms_nobody(tmp_path, usage):
    watcher = Scene(tmp_path, Answer(reply("Likes tea"), "m", usage)).learn()
    assert [(ended.tokens_in, ended.tokens_out, ended.error) for ended in watcher.ended] == [(None, None, None)]
    assert [update.outcome for update in watcher.updates] == ["learned"]


def test_an_attempt_that_an_erasure_makes_needless_is_no_call_and_its_update_was_discarded(tmp_path):
    scene = Scene(tmp_path)
    scene.memory.record("t", exchange("milk", 2))

    def forgets(prompt: Prompt) -> str:
        scene.memory.forget(matching="tea")
        raise ModelUnavailableError("busy")

    scene.model._script += [forgets, reply("Likes tea")]
    watcher = scene.learn()
    assert (len(watcher.started), [ended.error for ended in watcher.ended]) == (1, ["unavailable"])
    assert [(update.outcome, update.reason, update.attempts) for update in watcher.updates] == [
        ("discarded", "basis", 1)
    ]


def test_a_clock_that_is_set_back_makes_no_call_end_before_it_began(tmp_path):
    scene = Scene(tmp_path)
    scene.model._script.append(taking(-3600, scene.clock, reply()))
    assert [ended.seconds for ended in scene.learn().ended] == [0]


def test_on_the_machines_own_clock_time_is_monotonic(monkeypatch):
    ticks, monotonic, mine = iter([10.0, 12.5]), time.monotonic, threading.get_ident()
    # Threads that other tests have left waiting read it, too.
    monkeypatch.setattr("time.monotonic", lambda: next(ticks) if threading.get_ident() == mine else monotonic())
    watcher = Watcher()
    call = CallStarted(
        scope=Scope(), thread="t", turns=TurnRange(1, 1), provider="custom", model="m", prompt="", estimated_tokens=1
    )
    observing.Observers([watcher], SystemClock()).watch(call, lambda: Answer("", "m"))
    assert [ended.seconds for ended in watcher.ended] == [2.5]


def test_each_portion_of_a_long_conversation_is_a_call_and_an_update_of_its_own(tmp_path):
    clock, watcher = FakeClock(), Watcher()
    writer = Writer(JsonlStore(tmp_path), Scope("ada"), clock=clock, salts=CountingSalts())
    updater = updater_on(clock, prompt_max_tokens=4_000, observers=[watcher])
    writer.record("t", keep([read_message(message) for _ in range(8) for message in exchange("tea " * 200)]))
    updater.run(writer, Job("t", TurnRange(1, 16)), ScriptedModel(reply("Likes tea"), repeat=True))
    parts = [call.turns for call in watcher.started]
    assert len(parts) > 1
    assert (parts[0].first, parts[-1].last) == (1, 16)
    assert [update.turns for update in watcher.updates] == parts
    assert [update.seq for update in watcher.updates] == [number + 2 for number in range(len(parts))]
    assert all(2_000 < call.estimated_tokens <= 4_000 for call in watcher.started)


def test_signals_seen_in_the_conversation_are_told(tmp_path):
    scene = Scene(tmp_path, reply(), reply())
    scene.learn()
    scene.memory.record("u", [{"role": "user", "content": "No, that's wrong, use ruff instead."}, exchange("it")[1]])
    scene.learn()
    first, second = scene.watcher.started
    assert "correction" not in first.signals
    assert "correction" in second.signals
    assert [update.signals for update in scene.watcher.updates] == [first.signals, second.signals]


# Updates


def test_an_update_is_told_by_what_was_accepted_and_refused_and_what_gave_way(tmp_path):
    answer = {
        "user": {"workContext": {"summary": "Builds things", "shouldUpdate": True}},
        "newFacts": [
            {"content": "Likes green tea", "confidence": 0.99},
            {"content": "Likes black tea", "confidence": 0.1},
            {"content": "Likes white tea", "confidence": 0.2},
            "no fact at all",
        ],
        "factsToRemove": ["fact_2_0", "fact_99_9"],
        "factsToReinforce": ["fact_2_1"],
    }
    first = reply(*(f"Knows thing {number}" for number in range(11)))
    scene = Scene(tmp_path, Answer(first, "m"), Answer(msgspec.json.encode(answer).decode(), "m", Usage(9, 5)))
    scene.learn()
    scene.memory.record("t", exchange("more", 2))
    known, update = scene.learn().updates
    assert (known.accepted, known.refused, known.evicted) == ({"newFact": 11}, {}, 0)
    assert (update.scope, update.thread, update.turns) == (Scope("ada", "coder"), "t", TurnRange(3, 4))
    assert (update.seq, update.outcome, update.reason) == (3, "learned", None)
    assert update.accepted == {"newFact": 1, "newSummary": 1, "removal": 1, "reinforcement": 1}
    assert update.evicted == 0
    assert update.refused == {"threshold": 2, "malformed": 1, "unknown_fact": 1}
    assert set(update.refusals) == {
        Refusal("newFact", "threshold", 2),
        Refusal("unread", "malformed", 1),
        Refusal("removal", "unknown_fact", 1),
    }
    assert (update.model, update.tokens_in, update.tokens_out) == ("m", 9, 5)
    assert update.prompt == scene.model.prompts[-1].digest


def test_refusals_of_several_kinds_by_one_rule_are_one_count_by_rule():
    refusals = (Refusal("newFact", "gate", 2), Refusal("removal", "gate", 1), Refusal("newFact", "cap", 4))
    update = UpdateSettled(
        scope=Scope(), thread="t", turns=TurnRange(1, 1), seq=2, outcome="learned", refusals=refusals
    )
    assert update.refused == {"gate": 3, "cap": 4}


def test_facts_that_give_way_to_new_ones_are_counted(tmp_path):
    old = reply(*(f"Knows thing {number}" for number in range(10)), confidence=0.8)
    scene = Scene(tmp_path, old, reply("Likes tea", "Likes milk"), max_facts=10)
    scene.learn()
    scene.memory.record("t", exchange("more", 2))
    assert [(update.accepted, update.evicted) for update in scene.learn().updates] == [
        ({"newFact": 10}, 0),
        ({"newFact": 2}, 2),
    ]


def test_an_answer_that_is_no_reply_is_a_call_that_ended_well_and_an_update_that_failed(tmp_path):
    watcher = Scene(tmp_path, "half {").learn()
    assert [ended.error for ended in watcher.ended] == [None]
    assert [(update.outcome, update.reason, update.turns) for update in watcher.updates] == [
        ("failed", "reply", TurnRange(1, 2))
    ]


@pytest.mark.parametrize(("text", "reason"), [(reply("Likes tea", "Runs"), "basis"), (reply(), None)])
def test_an_answer_that_came_too_late_was_discarded(tmp_path, text, reason):
    scene = Scene(tmp_path, reply("Lives in Oslo"))
    scene.learn()
    scene.memory.record("t", exchange("milk", 2))
    scene.model._script.append(after(lambda: scene.memory.revert(2), text))
    update = scene.learn().updates[-1]
    assert (update.outcome, update.reason, update.turns) == ("discarded", reason, TurnRange(3, 4))
    assert update.accepted == {}


def test_an_answer_that_an_erasure_overtook_was_discarded(tmp_path):
    scene = Scene(tmp_path, reply("Lives in Oslo"))
    scene.learn()
    scene.memory.record("t", exchange("milk", 2))
    scene.model._script.append(after(lambda: scene.memory.forget(matching="Oslo"), reply("Likes tea")))
    update = scene.learn().updates[-1]
    assert (update.outcome, update.reason, update.refused) == ("discarded", "basis", {})


def test_a_recorded_answer_is_an_update_without_a_call(tmp_path):
    scene = Scene(tmp_path)
    scene.memory.extract([RecordedReply("t", reply("Likes tea"))])
    (update,) = scene.watcher.told
    assert isinstance(update, UpdateSettled)
    assert (update.outcome, update.accepted, update.model, update.prompt) == (
        "learned",
        {"newFact": 1},
        "recorded",
        None,
    )


def test_an_update_that_was_interrupted_is_not_told(tmp_path):
    scene = Scene(tmp_path)
    scene.model._script.append(after(scene.home._services.updater.stop, reply("never")))
    watcher = scene.learn()
    assert [type(what) for what in watcher.told] == [CallStarted, CallEnded]


def test_where_nothing_is_asked_nothing_is_told(tmp_path):
    scene = Scene(tmp_path, reply())
    scene.learn()
    scene.watcher.told.clear()
    assert scene.learn().told == []
    scene.memory.add_fact("Likes tea")
    assert scene.watcher.told == []


# What is never told

SECRETS = ("zanzibar", "quokka", "marzipan", "obelisk", "tamarind", "vuvuzela")


def test_no_word_that_was_said_learned_or_answered_is_ever_told(tmp_path):
    said, known, learned, refused, broken, error = SECRETS
    sick = ModelUnavailableError(f"cannot read {error}")
    sick.__cause__ = ValueError(error)
    answer = {
        "newFacts": [
            {"content": f"Likes {learned}", "confidence": 0.9, "category": refused},
            {"content": f"Likes {refused}", "confidence": 0.1},
            {"text": broken},
        ],
        "factsToRemove": [{"id": broken, "reason": broken}],
        "user": {"topOfMind": {"summary": learned, "shouldUpdate": True, "scope": refused}},
    }
    text = msgspec.json.encode(answer).decode()
    scene = Scene(tmp_path, sick, text, f"{broken} {{", ModelRejectedError(error))
    scene.memory.add_fact(f"Likes {known}")
    for number in range(3):
        scene.memory.record("t", exchange(said, 10 + number))
        scene.learn()
    spelled = msgspec.json.encode(scene.watcher.told).decode() + repr(scene.watcher.told)
    assert len(scene.watcher.updates) == 3
    assert said in scene.model.prompts[0].user
    assert known in scene.model.prompts[0].user
    assert [secret for secret in SECRETS if secret in spelled] == []
    assert all(name in spelled for name in ('"ada"', '"coder"', '"t"', '"ValueError"'))


# What cannot be harmed


class Breaking(Observer):
    def on_call_started(self, call: CallStarted) -> None:
        raise RuntimeError("started")

    def on_call_ended(self, ended: CallEnded) -> None:
        raise RuntimeError("ended")

    def on_update(self, update: UpdateSettled) -> None:
        raise RuntimeError("update")


def test_a_callback_that_raises_is_logged_and_harms_neither_the_update_nor_the_others(tmp_path, caplog):
    watcher = Watcher()
    scene = Scene(tmp_path, ModelUnavailableError("busy"), reply("Likes tea"), callbacks=[Breaking(), watcher])
    assert scene.memory.extract().failed == 0
    assert [fact.content for fact in scene.memory.facts()] == ["Likes tea"]
    assert [type(what) for what in watcher.told] == [CallStarted, CallEnded, CallStarted, CallEnded, UpdateSettled]
    logged = [record for record in caplog.records if "Breaking" in record.message]
    assert len(logged) == 5
    assert all(record.exc_info for record in logged)


def test_a_callback_that_raises_while_a_call_fails_hides_no_failure(tmp_path):
    scene = Scene(tmp_path, ModelRejectedError("no"), callbacks=[Breaking()])
    assert scene.memory.extract().failed == 1


class Busy(Observer):
    """At each step of ada's update has another thread, and its own, use the memory and learn from bob."""

    def __init__(self) -> None:
        self.scene: Scene | None = None
        self.done = 0

    def _use(self) -> None:
        assert self.scene is not None
        memory, other = self.scene.memory, self.scene.home.memory("bob")
        memory.record("t", exchange(f"more {self.done}"), mode="append")
        memory.add_fact(f"Fact {self.done} {threading.get_ident()}")
        memory.document()
        other.record("b", exchange("tea"), mode="append")
        assert other.extract().updates == 1

    def _try(self, scope: Scope) -> None:
        if scope.user == "bob":
            return
        other = threading.Thread(target=self._use, daemon=True)
        other.start()
        other.join(PATIENCE)
        assert not other.is_alive()
        self._use()
        self.done += 1

    def on_call_started(self, call: CallStarted) -> None:
        self._try(call.scope)

    def on_call_ended(self, ended: CallEnded) -> None:
        self._try(ended.call.scope)

    def on_update(self, update: UpdateSettled) -> None:
        self._try(update.scope)


def test_callbacks_run_outside_of_every_lock(tmp_path):
    busy = Busy()
    busy.scene = Scene(tmp_path, *[reply("Likes tea")] * 7, callbacks=[busy])
    assert busy.scene.memory.extract().failed == 0
    assert busy.done == 3


def test_a_slow_watcher_of_one_thread_keeps_no_other_from_being_learned_from(tmp_path):
    gate = Gate("")

    class Slow(Observer):
        def on_update(self, update: UpdateSettled) -> None:
            if update.thread == "t":
                gate(Prompt("", "", "", {}))

    watcher = Watcher()
    scene = Scene(tmp_path, reply("Likes tea"), reply("Likes milk"), callbacks=[Slow(), watcher])
    learning = threading.Thread(target=scene.memory.extract, daemon=True)
    learning.start()
    assert gate.entered.wait(PATIENCE)
    scene.memory.record("u", exchange("milk"))
    scene.memory.extract(thread="u")
    assert [update.thread for update in watcher.updates] == ["u"]
    gate.opened.set()
    learning.join(PATIENCE)
    assert [update.thread for update in watcher.updates] == ["u", "t"]


# Set-up


def test_workers_tell_too_all_of_one_update_in_one_thread(tmp_path):
    scene = Scene(tmp_path, reply("Likes tea"), background=True, debounce_seconds=0, workers=1)
    with scene.home:
        assert scene.memory.flush(PATIENCE)
    assert [type(what) for what in scene.watcher.told] == [CallStarted, CallEnded, UpdateSettled]
    assert len(scene.watcher.threads) == 1
    assert threading.get_ident() not in scene.watcher.threads


def test_an_observer_that_overrides_nothing_does_nothing(tmp_path):
    assert Scene(tmp_path, reply("Likes tea"), callbacks=[Observer()]).memory.extract().failed == 0


@pytest.mark.parametrize(("wrong", "named"), [(print, "print"), (Watcher, "Watcher"), ("x", "str")])
def test_a_callback_that_is_no_observer_is_refused_at_once(tmp_path, wrong, named):
    with pytest.raises(ConfigError, match=rf"callbacks holds a {named}, which is no Observer"):
        open_home(tmp_path / "home", ScriptedModel(), callbacks=[wrong])
    assert not (tmp_path / "home").exists()


def test_callbacks_need_no_model(tmp_path):
    memory = open_home(tmp_path, callbacks=[Watcher()]).memory("ada")
    memory.record("t", exchange("tea"))
    with pytest.raises(NoModelError):
        memory.extract()


# The page


@pytest.mark.parametrize("told", [CallStarted, CallEnded, UpdateSettled])
def test_the_page_names_every_field(told):
    table = PAGE.partition(f"| `{told.__name__}` | |\n")[2].partition("\n\n")[0]
    rows = [row.split("|")[1] for row in table.splitlines()[1:]]
    extra = {"refused"} if told is UpdateSettled else set()
    assert sorted(re.findall(r"`(\w+)`", " ".join(rows))) == sorted({*told.__struct_fields__, *extra})


def test_the_page_names_every_callback():
    callbacks = re.findall(r"^\| `(on_\w+)` \| `(\w+)` \|", PAGE, re.MULTILINE)
    assert [name for name, _ in callbacks] == [name for name in vars(Observer) if name.startswith("on_")]
    assert [told for _, told in callbacks] == ["CallStarted", "CallEnded", "UpdateSettled"]


# What calls itself off


class CallingOff(Observer):
    """Raises what it was made with, at the step of that name."""

    def __init__(self, step: str, error: BaseException) -> None:
        self._step = step
        self._error = error

    def _raise(self, step: str) -> None:
        if step == self._step:
            raise self._error

    def on_call_started(self, call: CallStarted) -> None:
        self._raise("started")

    def on_call_ended(self, ended: CallEnded) -> None:
        self._raise("ended")

    def on_update(self, update: UpdateSettled) -> None:
        self._raise("update")


@pytest.mark.parametrize("step", ["started", "ended", "update"])
def test_a_callback_that_calls_itself_off_is_logged_and_harms_nothing(tmp_path, caplog, step):
    watcher = Watcher()
    callbacks = [CallingOff(step, asyncio.CancelledError()), watcher]
    scene = Scene(tmp_path, reply("Likes tea"), callbacks=callbacks)
    assert scene.memory.extract().failed == 0
    assert [fact.content for fact in scene.memory.facts()] == ["Likes tea"]
    assert [type(what) for what in watcher.told] == [CallStarted, CallEnded, UpdateSettled]
    (logged,) = [record for record in caplog.records if "CallingOff" in record.message]
    assert logged.exc_info


@pytest.mark.parametrize("step", ["started", "ended", "update"])
@pytest.mark.parametrize("ends", [KeyboardInterrupt, SystemExit])
def test_a_person_who_ends_the_program_during_a_callback_is_heard(tmp_path, step, ends):
    scene = Scene(tmp_path, reply("Likes tea"), callbacks=[CallingOff(step, ends())])
    with pytest.raises(ends):
        scene.memory.extract()
    # Only what was committed before it was told is learned.
    assert [fact.content for fact in scene.memory.facts()] == (["Likes tea"] if step == "update" else [])


def test_workers_outlive_callbacks_that_call_themselves_off(tmp_path):
    callbacks = [CallingOff("update", asyncio.CancelledError())]
    script = [reply("Likes tea")] * 4
    scene = Scene(tmp_path, *script, callbacks=callbacks, background=True, debounce_seconds=0, workers=1)
    with scene.home:
        for thread in ("u", "v", "w"):
            scene.memory.record(thread, exchange("tea"))
            assert scene.memory.flush(PATIENCE)
        assert scene.memory.status().pending == ()
