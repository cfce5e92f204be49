"""English grammar of upload sentences: which of them only say that a file came.

The words are in `uploads_english.toml`.
"""

from __future__ import annotations

import re

from backstory.ledger.text.word_lists import word_lists

_REACH = 8
"""Words within which the noun of a phrase, or the verb after it, has to come."""
_NEAR = 5
"""Words within which a preposition has to reach what makes it harmless ("in the current session")."""
_CROWD = 1000
_YEARS = range(1900, 2101)

_LISTS = word_lists("uploads_english")
EXTENSIONS = "|".join(_LISTS["extensions"])
FILE_NAME = re.compile(rf".+\.(?:{EXTENSIONS})")
_TOKEN = re.compile(r"""(?:"[^"]*(?:"|$)|'[^']*(?:'|$)|“[^”]*(?:”|$)|`[^`]*(?:`|$))|[^\s,;:()—–]+|[,;:()—–]""")

# A name and a title may hold any word at all; as these marks they cannot be mistaken for grammar.
_FILE = "\0file"
_TITLE = "\0title"

_WORDS = {name: frozenset(words) for name, words in _LISTS.items()}
_WHO = _WORDS["who"]
_HELPERS = _WORDS["helpers"]
_BROUGHT = _WORDS["brought"]
_GAVE = _WORDS["gave"]
_ATTACHMENTS = _WORDS["attachments"]
_FILES = _ATTACHMENTS | _WORDS["files"]
_MARKED = _WORDS["marked"]
_ARTICLES = _MARKED | _WORDS["articles"]
_HEAPS = _WORDS["heaps"]
_BE = _WORDS["be"]
_FINITE = _BE | _WORDS["finite"]
_PERSONS = _WORDS["persons"]
_CLAUSES = _WORDS["clauses"]
_HABITS = _WORDS["habits"]
_JOINTS = _WORDS["joints"]
_SHOWS = _WORDS["shows"]
_DESCRIBES = _WORDS["describes"]
_IDENTIFIES = _WORDS["identifies"] | {_FILE, _TITLE}
_SESSION = _WORDS["session"]
_ALLOWED = {
    "to": _SESSION | _WORDS["tasks"],
    "into": _SESSION,
    "in": _SESSION | {"format"},
    "during": _SESSION,
    "within": _SESSION,
    "for": _WORDS["purposes"],
    "as": _WORDS["purposes"],
    "by": frozenset({"user"}),
    **dict.fromkeys(_WORDS["places"], frozenset[str]()),
}
"""Prepositions, and what each has to reach for the sentence to stay in this session."""
_AFTER_NOUN = (
    _DESCRIBES | _SHOWS | _JOINTS | _CLAUSES | _FINITE | _BROUGHT | _HELPERS | _ALLOWED.keys() | _WORDS["after_noun"]
)
# "Detailed" may stand before a noun ("a detailed report"), "details" is a verb there.
_NOT_IN_NOUN = (
    (_AFTER_NOUN - {"that"} - {word for word in _SHOWS if not word.endswith("s")})
    | _HABITS
    | {"user", "he", "she", "they", "i", "we", "you", "it"}
)
_SAYS_MORE = _PERSONS | _CLAUSES | _HABITS | _FINITE


def is_english_event(plain: str) -> bool:
    """Say whether a normalised, casefolded sentence only says that a file came."""
    words = _after_lead_in(_english_words(plain))
    return bool(words) and any(shape(words) for shape in (_user_brought, _file_came, _file_list, _file_holds))


def _english_words(plain: str) -> list[str]:
    words = []
    for token in _TOKEN.findall(plain.replace("‘", "'").replace("’", "'")):
        bare = token.strip("\"'“”`*_[]!?.")
        if FILE_NAME.fullmatch(bare):
            words.append(_FILE)
        elif token[0] in "\"'“`":
            words.append(_TITLE)
        elif bare:
            words.append(bare)
    return words


def _after_lead_in(words: list[str]) -> list[str]:
    """Drop "Also," and "In this session," from the front."""
    at = 0
    while at < len(words) and (words[at] in _HELPERS or words[at] in {"additionally", ","}):
        at += 1
    if words[at : at + 1] and words[at] in _ALLOWED:
        after = _reach(words, at, _SESSION)
        return words[after + (words[after : after + 1] == [","]) :] if after else words
    return words[at:]


def _user_brought(words: list[str]) -> bool:
    at = 1 if words[0] in {"the", "this"} else 0
    named = words[at : at + 1] != [] and words[at] in _WHO
    if named:
        at = _skip(words, at + 1, _HELPERS)
    if at >= len(words) or (at and not named):
        return False
    end = _noun(words, at + 1)
    if not end:
        return False
    tail = words[end:]
    if words[at] in _BROUGHT:
        # Without a subject "uploaded files" is a heading or a kind of thing, "uploaded a file" is an event.
        return (named or _begins_noun(words[at + 1], bare=False)) and _only_the_file(tail)
    if not named or words[at] not in _GAVE or not _begins_noun(words[at + 1]) or "with" in tail:
        return False
    return (_FILE in words or not _ATTACHMENTS.isdisjoint(words[at + 1 : end])) and _only_the_file(tail)


def _file_came(words: list[str]) -> bool:
    end = _begins_noun(words[0]) and _noun(words, 0)
    if not end:
        return False
    at = next((i for i in range(end, len(words)) if words[i] in _BROUGHT), end)
    aux = at
    while aux > end and (words[aux - 1] in _HELPERS or words[aux - 1] in _BE or words[aux - 1] == "been"):
        aux -= 1
    helpers = set(words[aux:at])
    passive = (
        not helpers.isdisjoint({"was", "were"})
        or ("been" in helpers and not helpers.isdisjoint({"has", "have", "had"}))
        or (words[at:][:1] == ["attached"] and not helpers.isdisjoint(_BE))
    )
    tail = words[at + 1 :]
    return passive and _only_the_file(words[end:aux]) and _begins_tail(tail) and _only_the_file(tail)


def _file_list(words: list[str]) -> bool:
    if ":" not in words[:_NEAR]:
        return False
    label = words[: words.index(":")]
    about = not (_BROUGHT | _ATTACHMENTS | {"uploads"}).isdisjoint(label)
    return (
        about
        and _BROUGHT.union(_FILES, _ARTICLES, {"uploads"}).issuperset(label)
        and _only_the_file(words[len(label) :])
    )


def _file_holds(words: list[str]) -> bool:
    at = _skip(words, 0, _MARKED | {"user"})
    if not at:
        return False
    at = _skip(words, at, _HELPERS)
    if at < len(words) and words[at] in _BROUGHT:
        end = _noun(words, at + 1)
    else:
        end = _noun(words, at)
        if words[end : end + 1] == [] or words[end] not in _BROUGHT:
            return False
        end += 1
    if not end:
        return False
    for verb in range(end, min(end + _REACH, len(words))):
        after = words[verb + 1 :]
        if words[verb] in _SHOWS or (words[verb] in _BE and after and after[0] in _IDENTIFIES):
            return _only_the_file(words[end:verb]) and _only_its_contents(after)
    return False


def _skip(words: list[str], at: int, among: frozenset[str]) -> int:
    while at < len(words) and words[at] in among:
        at += 1
    return at


def _begins_noun(word: str, *, bare: bool = True) -> bool:
    return word in _ARTICLES or word == _FILE or word.isdecimal() or (bare and word in _FILES)


def _begins_tail(words: list[str]) -> bool:
    return not words or words[0] in _AFTER_NOUN or words[0] in {_FILE, _TITLE}


def _noun(words: list[str], at: int) -> int:
    """Return the index behind a phrase whose noun is a file ("three scanned PDF documents"), 0 where there is none."""
    for i in range(at, min(at + _REACH, len(words))):
        word = words[i]
        if word in _FILES or word == _FILE:
            end = i + 1
            while end < len(words) and (words[end] in _FILES or words[end] in {_FILE, _TITLE}):
                end += 1
            return end if _begins_tail(words[end:]) else 0
        heap = word == "of" and i > at and words[i - 1] in _HEAPS
        crowd = word.isdecimal() and int(word) >= _CROWD and int(word) not in _YEARS
        if crowd or (word in _NOT_IN_NOUN and not heap):
            return 0
    return 0


def _reach(words: list[str], at: int, goals: frozenset[str]) -> int:
    """Return the index behind the first goal near `at`, 0 where something else comes first."""
    for i in range(at + 1, min(at + 1 + _NEAR, len(words))):
        if words[i] in goals:
            return i + 1
        if words[i] in _SAYS_MORE or words[i] in _JOINTS:
            return 0
    return 0


def _only_the_file(words: list[str]) -> bool:
    """Say whether the words behind a file only say what the file is, or that it came into this session."""
    at = 0
    while at < len(words):
        word = words[at]
        if word in _ALLOWED:
            at = _reach(words, at, _ALLOWED[word])
            if not at:
                return False
            continue
        if word in _SAYS_MORE:
            return False
        rest = words[at + 1 :]
        if word in {"that", "which"} and (not rest or rest[0] not in _SHOWS):
            return False
        if word in _JOINTS - {")"} and not _goes_on(rest):
            return False
        at += 1
    return True


def _goes_on(words: list[str]) -> bool:
    """Say whether what follows a comma or an "and" is one more file, or more about the same one."""
    at = _skip(words, 0, _JOINTS)
    if at >= len(words):
        return False
    about = words[at] in _DESCRIBES or words[at] in _ALLOWED or words[at] in {"that", "which"}
    return about or _HELPERS.issuperset(words[at:]) or (_begins_noun(words[at]) and bool(_noun(words, at)))


def _only_its_contents(words: list[str]) -> bool:
    """Say whether what an uploaded file "contains" goes on without a clause about anything else."""
    joined = False
    for before, word in zip(["", *words], words, strict=False):
        if word in _PERSONS or word in _CLAUSES:
            return False
        if joined and word in _FINITE and before not in _JOINTS:
            return False
        joined = joined or word in _JOINTS
    return True
