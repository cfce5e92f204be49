"""Conversations of a proxy: what is new of one that a client sends a model each time as a whole.

A client sends a model the whole conversation each time, and rewrites it: it strips answers and flattens calls of tools,
cuts off or summarises the beginning, and takes the context around a question away again. The words of the user stay.
So the user's messages are matched with the user's turns at the end of a thread, the last ones first:

- A thread holds the conversation where all messages of the user before the new ones are its last turns, or where its
  first turn comes in the middle of the conversation. What matches has to say something, or nothing else was said.
- A first message that does not match may be a summary, where two others match, or one with its answer.
- Questions that have no answer may be missing: a client takes them back when a model fails. A thread may have missed
  some, which passed the proxy by.
- Everything else contradicts.

What follows the last message that matches is new. Where none does, the newest exchange alone is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from itertools import dropwhile, islice, takewhile
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from backstory.ledger.core.events import Turn
from backstory.ledger.core.moments import parse_moment
from backstory.ledger.erasure.digest import ContentSeal
from backstory.ledger.text.acknowledgements import has_substance
from backstory.ledger.threads.delivery.resend import NOTHING_KNOWN, ResendAlignment, resemble
from backstory.ledger.threads.delivery.turn_match import Piece, Said, matches, may_be_same, plain_words, recognises
from backstory.ledger.threads.transcript import Thread
from backstory.ledger.threads.turn_columns import Trace

if TYPE_CHECKING:
    from backstory.ledger.messages import Kept

HINT = "hint"
"""The key of a turn's metadata for the conversation that its client named."""
SKIPPED = "skipped"
"""The key of a turn's metadata for the scaffolding around it: characters by the name of the wrapper."""
WEAK_HINTS = ("prompt_cache_key=",)
"""What several conversations of a client may share: it decides between threads, and proves nothing."""

_AGAIN = timedelta(minutes=10)
"""How long a first question may be asked again, so that another answer takes the place of the first."""
_MOST_MATCHED = 64
_MOST_PASSED = 256
_MOST_ASKED = 16
"""Messages of a question of which some may be recorded."""
_MOST_MISSED = 8
"""Messages of the user that a thread may have missed, since they passed the proxy by."""
_LAST_EXCHANGE = 8
_TWO = 2


class Told(msgspec.Struct, frozen=True):
    """Mode of a delivery that is the whole conversation as a model is asked with it.

    With `answered` its last message is the new answer; all others are the client's. With `adopts` a new thread takes
    all of it in.
    """

    answered: bool = False
    adopts: bool = False


class ThreadPlace(msgspec.Struct, frozen=True):
    """Place of a conversation in a thread.

    `end` is the index behind the last message of the user that the thread holds as its turn `turn`. `again`: the user
    says nothing new. `answered`: the turn has an answer. `replaced` are turns whose question is rephrased. `certain`:
    the words are no coincidence. `whole`: nothing else was said on either side. `agrees`: the answer is the same, too;
    None where there is none to compare. `passed` turns of the user were passed over; `behind` of them follow the last
    that matches.
    """

    end: int
    turn: int
    answered: bool
    matched: int
    hint: int
    again: bool = False
    whole: bool = False
    certain: bool = False
    agrees: bool | None = None
    passed: int = 0
    behind: int = 0
    replaced: tuple[int, ...] = ()

    @property
    def is_sure(self) -> bool:
        """Whether no other thread can be likelier: it holds the same words and answers, and nothing else."""
        return self.whole and self.certain and self.agrees is True and not self.again and self.hint < _TWO

    @property
    def rank(self) -> tuple[int, ...]:
        """Sorts places in several threads, the likeliest first."""
        kind = 0 if self.again and not self.answered else 1 if self.whole and not self.again else 2 if self.again else 3
        return self.hint, kind, not self.agrees, -self.matched


class _Said(NamedTuple):
    """A message of the user; `asked`: it belongs to the question, which must be sent word for word."""

    place: int
    words: str
    content: str
    asked: bool


class _Question(NamedTuple):
    """A turn of the user, or what is left of a turn that may have been one."""

    piece: Piece
    words: str
    answered: bool
    stands: bool
    behind: int
    """How many follow it."""


def begin_of_question(messages: Sequence[Kept]) -> int:
    """Return the index of the first message of the question: of the users' words that have no answer yet."""
    return next((n for n in range(len(messages), 0, -1) if messages[n - 1].role != "user"), 0)


def begin_of_exchange(messages: Sequence[Kept]) -> int:
    """Return the index of the first message of the newest exchange: of the question, or of the last one."""
    end = next((n for n in range(len(messages), 0, -1) if messages[n - 1].role == "user"), 0)
    return begin_of_question(messages[:end])


class TellingOf:
    """A conversation as a client sends it, without the new answer, to look for in threads."""

    def __init__(self, messages: Sequence[Kept]) -> None:
        begin = begin_of_question(messages)
        self.messages = messages
        self.said = [
            _Said(index, plain_words(message.content), message.content, index >= begin)
            for index, message in enumerate(messages)
            if message.role == "user"
        ]
        self.asked = sum(one.asked for one in self.said)
        self.words = {one.words for one in self.said}

    def place_in(self, thread: Thread, *, seal: ContentSeal | None = None, now: str = "") -> ThreadPlace | None:
        """Find its place in a thread; None where the thread is another conversation.

        Args:
            thread: What is recorded.
            seal: The keyed digest by which erased turns are recognised; None where the scope has no key.
            now: The time, for a first question that is asked again; empty if that is no proof.
        """
        return _Search(thread, self, seal, now).place() if self.said and len(thread.turns) else None


def align_told(
    thread: Thread,
    messages: Sequence[Kept],
    told: Told,
    *,
    seal: ContentSeal | None = None,
    now: str = "",
) -> ResendAlignment:
    """Align a conversation, as a model is asked with it, with its thread.

    Args:
        thread: What is recorded.
        messages: The conversation.
        told: What the proxy knows of it.
        seal: As for `TellingOf.place_in`.
        now: As for `TellingOf.place_in`.
    """
    asked = messages[:-1] if told.answered else messages
    if told.adopts and not len(thread.turns):
        return NOTHING_KNOWN
    place = TellingOf(asked).place_in(thread, seal=seal, now=now)
    if place is None:
        place = _unanswered(thread, asked, messages[-1:] if told.answered else ())
    # A history that was never seen is no speech, and neither is an answer that is sent again.
    begin = max(begin_of_exchange(asked), 0 if place is None else place.end)
    known = {*range(begin), *(n for n in range(begin, len(asked)) if asked[n].role != "user")}
    if place is None:
        return ResendAlignment(frozenset(known))
    answers = list(_behind(thread, place.turn))
    behind = list(takewhile(lambda n: asked[n].role != "user", range(place.end, len(asked))))
    if not answers:
        # The client has heard an answer that was not recorded.
        known.difference_update(behind)
    superseded = place.replaced
    if told.answered and place.again:
        if any(recognises(piece, Said.of(messages[-1]), seal) for piece in answers):
            known.add(len(asked))
        elif not behind:
            # An answer that the client sends before the question is not the one that is given again.
            said = {plain_words(one.content) for one in asked if one.role != "user"}
            stand = [piece for piece in answers if isinstance(piece, Turn) and thread.stands(piece.n)]
            superseded = tuple(turn.n for turn in stand if plain_words(turn.content) not in said)
    return ResendAlignment(frozenset(known), superseded)


def unseen(messages: Sequence[Kept], place: ThreadPlace | None) -> int:
    """Count the messages of a conversation before the newest exchange that a thread does not hold and will not.

    Args:
        messages: The conversation, without the new answer.
        place: Its place in the thread; None where it has none.
    """
    begin = begin_of_exchange(messages)
    if place is None:
        return begin
    # The answer to the last words that it holds is recorded, or will be.
    return len(list(dropwhile(lambda message: message.role != "user", messages[place.end : begin])))


def _behind(thread: Thread, n: int) -> Iterator[Piece]:
    """Yield what is behind a turn, up to the next words of the user: also what was erased or taken back."""
    for ordinal in range(n + 1, len(thread.turns) + 1):
        piece = thread.remembered(ordinal)
        if isinstance(piece, Turn) and piece.role == "user":
            return
        if piece is not None:
            yield piece


def _unanswered(thread: Thread, asked: Sequence[Kept], answer: Sequence[Kept]) -> ThreadPlace | None:
    """Find the question as the last words of a thread: it has no answer yet, or this one."""
    begin = begin_of_exchange(asked)
    question = [message for message in asked[begin:] if message.role == "user"]
    answers, said = [], []
    for turn in islice(thread.walk(back=True), len(question) + _LAST_EXCHANGE):
        if turn.role == "user":
            said.append(turn)
        elif said:
            break
        else:
            answers.append(turn.content)
    said = said[: len(question)][::-1]
    if not question or [plain_words(turn.content) for turn in said] != [plain_words(one.content) for one in question]:
        return None
    if answers and (not answer or answer[0].content not in answers):
        return None
    last = max(n for n, message in enumerate(asked) if message.role == "user")
    return ThreadPlace(last + 1, said[-1].n, bool(answers), matched=len(said), hint=1, again=True)


class _Pairs(NamedTuple):
    """What matches, the last first, how many messages are left before or were missed between, and turns passed over.

    `exhausted`: the thread has no more turns.
    """

    pairs: list[tuple[_Said, _Question]]
    left: int
    missed: int
    passed: int
    exhausted: bool


class _Search:
    """One conversation against the end of one thread."""

    def __init__(self, thread: Thread, telling: TellingOf, seal: ContentSeal | None, now: str) -> None:
        self._thread = thread
        self._telling = telling
        self._messages = telling.messages
        self._said = telling.said
        self._asked = telling.asked
        self._seal = seal
        self._now = now
        self._walked = _questions(thread)
        self._questions: list[_Question] = []

    def place(self) -> ThreadPlace | None:
        """Return the likeliest place."""
        count = len(self._said)
        history = count - self._asked
        ends = range(max(history, count - _MOST_ASKED), count + 1)
        found = [place for end in ends if (place := self._ending(end)) is not None]
        return _likeliest(found) if found else self._rephrased()

    def _ending(self, count: int) -> ThreadPlace | None:
        """Match a number of the user's messages with the end of the thread."""
        pairs, left, missed, passed, exhausted = self._pairs(count)
        if not pairs:
            return None
        said, question = pairs[0]
        telling = sum(has_substance(one.words) for one, _ in pairs)
        again = count == len(self._said)
        # Behind the newest question no answer is sent.
        agrees, told = self._agrees(*pairs[1 if again and said.asked and len(pairs) > 1 else 0])
        hint = self._hint(question)
        evident = telling + (agrees is True and has_substance(told))
        whole = exhausted and not left and not missed
        if missed or (left and not exhausted):
            # A first message that does not match may be a summary.
            holds = (left < _TWO or exhausted) and telling > 0 and (evident >= _TWO or hint == 0)
        elif whole:
            holds = hint <= 1 or evident > 0
        else:
            holds = evident > 0
        if said.asked and pairs[-1][0].asked:
            # Without a history; or the client does not tell answers that call tools.
            if not again:
                holds = holds and (telling > 0 or not question.answered)
            elif not any(one.answered for _, one in pairs[1:]):
                holds = self._is_asked_again(pairs, hint, exhausted=exhausted)
        elif again and said.asked and question.answered:
            # An answer loses its standing by it, so it must not be the one that is sent before the question.
            before, _ = self._agrees(pairs[1][0], question) if len(pairs) > 1 else (False, "")
            holds = holds and evident > 0 and not missed and (agrees is not False or not before)
        if not holds:
            return None
        return ThreadPlace(
            said.place + 1,
            question.piece.n,
            question.answered,
            matched=len(pairs),
            hint=hint,
            again=again,
            whole=whole,
            certain=evident > 0,
            agrees=agrees,
            passed=passed,
            behind=question.behind,
        )

    def _pairs(self, count: int, skip: int = 0) -> _Pairs:
        """Match a number of the user's messages with turns, the last first; a thread may have missed some."""
        pairs: list[tuple[_Said, _Question]] = []
        left, missed, passed = count, 0, 0
        for question in self._back(skip):
            if len(pairs) == _MOST_MATCHED:
                return _Pairs(pairs, 0, missed, passed, exhausted=False)
            n = self._sought(question, left, _MOST_MISSED - missed)
            if n is not None:
                missed += left - 1 - n
                left = n
                pairs.append((self._said[n], question))
            elif question.stands and question.answered:
                return _Pairs(pairs, left, missed, passed, exhausted=False)
            elif (passed := passed + 1) > _MOST_PASSED:
                return _Pairs([], left, missed, passed, exhausted=False)
        return _Pairs(pairs, left, missed, passed, exhausted=True)

    def _sought(self, question: _Question, left: int, most: int) -> int | None:
        """Return which of a number of messages is a turn; one before others only where it is sent word for word."""
        if not left or self._is(question, self._said[left - 1]):
            return left - 1 if left else None
        if question.words not in self._telling.words or self._said[left - 1].asked or not has_substance(question.words):
            return None
        before = range(left - 2, max(-1, left - 2 - most), -1)
        return next((n for n in before if self._said[n].words == question.words), None)

    def _back(self, skip: int) -> Iterator[_Question]:
        n = skip
        while True:
            if n == len(self._questions):
                question = next(self._walked, None)
                if question is None:
                    return
                self._questions.append(question)
            yield self._questions[n]
            n += 1

    def _is(self, question: _Question, said: _Said) -> bool:
        if isinstance(question.piece, Trace):
            # A length alone proves no question.
            prove = recognises if said.asked else matches
            return prove(question.piece, Said("user", said.content), self._seal)
        return question.words == said.words if said.asked else may_be_same(question.words, said.words)

    def _agrees(self, said: _Said, question: _Question) -> tuple[bool | None, str]:
        """Whether the client sends the recorded answer behind a question, None without one; and that answer."""
        told = next(iter(self._messages[said.place + 1 : said.place + 2]), None)
        turn = next(_behind(self._thread, question.piece.n), None)
        if told is None or not isinstance(turn, Turn) or told.role == "user":
            return None, ""
        words = plain_words(turn.content)
        return may_be_same(words, plain_words(told.content)), words

    def _hint(self, question: _Question) -> int:
        """Whether the client names the same conversation (0), none (1) or another (2)."""
        mine = self._messages[self._said[-1].place].metadata.get(HINT)
        known = question.piece.metadata.get(HINT) if isinstance(question.piece, Turn) else None
        return 1 if mine is None or known is None else 0 if mine == known else 2

    def _is_asked_again(self, pairs: Sequence[tuple[_Said, _Question]], hint: int, *, exhausted: bool) -> bool:
        """Whether a thread that holds a first question alone is the one in which it is asked again."""
        if not exhausted or hint > 1:
            return False
        question = pairs[0][1]
        if not question.answered:
            return True
        if len(self._questions) != len(pairs):
            return False
        mine = self._messages[self._said[-1].place].metadata.get(HINT)
        if hint == 0 and not str(mine).startswith(WEAK_HINTS):
            return True
        then, now = parse_moment(self._thread.recorded_at[-1]), parse_moment(self._now) if self._now else None
        telling = any(has_substance(said.words) for said, _ in pairs)
        return telling and then is not None and now is not None and now - then <= _AGAIN

    def _rephrased(self) -> ThreadPlace | None:
        """Find the conversation as the whole thread, but for its last question in other words."""
        history = len(self._said) - self._asked
        last = next(self._back(0), None)
        if last is None or self._asked != 1 or not history or not isinstance(last.piece, Turn):
            return None
        pairs, left, missed, passed, exhausted = self._pairs(history, skip=1)
        replaced = [turn.n for turn in self._thread.walk(last.piece.n)]
        telling = any(has_substance(said.words) for said, _ in pairs)
        if left or missed or not exhausted or not telling or not last.stands or len(replaced) > _LAST_EXCHANGE:
            return None
        if not resemble(last.piece.content, self._said[-1].content):
            return None
        said, question = pairs[0]
        agrees, _ = self._agrees(said, question)
        if not agrees:
            return None
        return ThreadPlace(
            said.place + 1,
            question.piece.n,
            question.answered,
            matched=len(pairs),
            hint=self._hint(question),
            certain=True,
            agrees=agrees,
            passed=passed,
            replaced=tuple(replaced),
        )


def _likeliest(found: Sequence[ThreadPlace]) -> ThreadPlace:
    """Return the likeliest of several places, of which those where more is new come first."""
    for place in found:
        if place.again and not place.answered:
            return place
    # To record a question twice is better than to lose its first answer.
    nearest = min(place.behind for place in found)
    likely = [place for place in found if place.behind == nearest]
    goes_on = any(not place.again for place in likely)
    likely = [place for place in likely if not place.again or place.agrees or not goes_on]
    likely = [place for place in likely if place.agrees is not False] or likely
    fewest = min(place.passed for place in likely)
    likely = [place for place in likely if place.passed == fewest]
    return next((place for place in reversed(likely) if place.whole), likely[0])


def _questions(thread: Thread) -> Iterator[_Question]:
    """Yield the turns of the user, and what is left of others, the last first."""
    answered = False
    behind = 0
    for n in range(len(thread.turns), 0, -1):
        piece = thread.remembered(n)
        if piece is None:
            continue
        if isinstance(piece, Turn) and piece.role != "user":
            answered = True
            continue
        turn = piece if isinstance(piece, Turn) else None
        yield _Question(piece, "" if turn is None else plain_words(turn.content), answered, thread.stands(n), behind)
        behind += 1
        # What was erased may have been an answer.
        answered = turn is None
