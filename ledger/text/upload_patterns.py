"""Patterns of upload sentences, English and Chinese: which of them only say that a file came.

The words are in `uploads_english.toml` and `uploads_chinese.toml`. A file's name is read as one mark, and another
quoted title as another, for they may hold any word. In English commas, brackets and "and" are read as one comma. No
pattern tries a stretch of words in two ways, so each takes a time that is bounded by a sentence's length.
"""

from __future__ import annotations

import re

from backstory.ledger.text.word_lists import word_lists


def _lists(name: str) -> dict[str, str]:
    return {key: "|".join(words) for key, words in word_lists(name).items()}


_ENGLISH = _lists("uploads_english")
FILE_NAME = re.compile(rf".+\.(?:{_ENGLISH['extensions']})")
_TOKEN = re.compile(r"""(?:"[^"]*(?:"|$)|'[^']*(?:'|$)|“[^”]*(?:”|$)|`[^`]*(?:`|$))|[^\s,;:()—–]+|[,;:()—–]""")
_MARKS = {**dict.fromkeys((",", "(", ")", "&", "and", "or", "plus"), ","), ":": ":"}


def _any(*lists: str) -> str:
    """Return the pattern of a space and a word of some lists."""
    return rf" !?(?:{'|'.join(_ENGLISH[name] for name in lists)})(?![^\s,:])"


_ELSE_LISTS = (
    *("persons", "clauses", "habits", "be", "finite", "describes", "helpers", "brought", "prepositions", "which"),
)
_ELSE = frozenset(word for name in _ELSE_LISTS for word in _ENGLISH[name].split("|"))
"""Words that begin another part of the sentence, or say something else; each is read as `!word`."""
_WORD = r" [^\s,:!][^\s,:]*"
_NEAR = rf"(?:{_WORD}){{0,4}}?"
_HELPERS = f"(?:{_any('helpers')})*"
_FILE = rf"(?:{_any('files', 'attachments')}| \0)"
_CROWD = r" (?!19\d\d|20\d\d)\d{4,}"
_NOUN = (
    rf"(?>(?:{_any('marked')}|{_any('heaps')} !of|(?!{_any('verbs')}|{_CROWD}){_WORD}){{0,7}}?"
    rf"{_FILE}(?:{_FILE}| \x01)*)"
)
"""A phrase whose noun is a file: "three scanned PDF documents"."""
_KNOWN = rf"(?={_any('marked', 'articles', 'files', 'attachments')}| \0| \d){_NOUN}"
_IN_SESSION = rf" !(?:in|into|to|during|within){_NEAR}{_any('session')}"
_ABOUT = (
    rf"(?>{_any('describes')}|{_any('which')}{_any('shows')}| !by(?: the)? !user(?![^\s,:])|{_IN_SESSION}"
    rf"| !in{_NEAR} format| !to{_NEAR}{_any('tasks')}| !(?:for|as){_NEAR}{_any('purposes')})(?:{_WORD})*"
)
_REST = rf"(?: \x01|{_any('helpers')}|{_ABOUT}|,(?:{_any('helpers')}(?=,|$)|{_ABOUT}|{_KNOWN}))*"
"""What says what the file is, or that it came into this session; or one more file."""
_USER = rf"(?: the| this)?{_any('who')}{_HELPERS}"
_WAS = rf"(?: !was| !were| !(?:has|have|had){_HELPERS} !been){_HELPERS}{_any('brought')}|{_any('be')} attached"
_SAME = rf"(?!{_any('persons', 'clauses')}) [^\s,:]+"
_CONTENTS = rf"(?:{_SAME})*(?:,(?:(?!{_any('be', 'finite')}){_SAME})*)*"
_LABEL = _any("brought", "attachments", "uploads")
_UPLOADED = rf"(?:{_any('marked')}| !user)+{_HELPERS}(?:{_any('brought')}{_NOUN}|{_NOUN}{_any('brought')})"
_SHAPES = (
    # The user brought a file. Without a subject "uploaded files" is a heading or a kind of thing.
    rf"{_USER}{_any('brought')}{_NOUN}{_REST}",
    rf"{_any('brought')}(?={_any('marked', 'articles')}| \0| \d){_NOUN}{_REST}",
    rf"{_USER}{_any('gave')}(?=[^,]*(?: \0|{_any('attachments')}))(?!.* !with(?![^\s,])){_KNOWN}{_REST}",
    # A file was brought.
    rf"{_KNOWN}{_REST},?(?:{_WAS}){_REST}",
    # A list of files.
    rf"(?:{_any('brought', 'articles', 'marked', 'files')})*{_LABEL}(?:{_any('files')})*:{_KNOWN}{_REST}",
    # What an uploaded file holds.
    rf"{_UPLOADED}{_REST}(?:{_any('shows')}|{_any('be')}{_any('identifies')}){_CONTENTS}",
)
_EVENT = re.compile(rf"(?:(?:{_any('helpers')}| additionally),?)*(?:{_IN_SESSION},?)?(?:{'|'.join(_SHAPES)})")


def is_english_event(plain: str) -> bool:
    """Say whether a normalised, casefolded sentence only says that a file came."""
    return _EVENT.fullmatch(_with_marks(plain)) is not None


def _with_marks(plain: str) -> str:
    words: list[str] = []
    for token in _TOKEN.findall(plain.replace("‘", "'").replace("’", "'")):
        bare = token.strip("\"'“”`*_[]!?.")
        if mark := _MARKS.get(token):
            words += () if mark == "," == "".join(words[-1:]) else (mark,)
        elif FILE_NAME.fullmatch(bare):
            words.append(" \0")
        elif token[0] in "\"'“`":
            words.append(" \1")
        elif bare:
            words.append(f" !{bare}" if bare in _ELSE else f" {bare}")
    return "".join(words)


# Chinese.

_CHINESE = _lists("uploads_chinese")
_FILES = _CHINESE["files"]
_CALLED = f"(?:{_CHINESE['named']})"
# Possessive, since 已|已经 and the like can be cut in more ways than one.
_BEFORE = f"(?:{_CHINESE['lead']})*+"
_WHO = f"(?:{_CHINESE['who']})?"
_NAME = (
    rf"《[^》]*(?:》|$)|“[^”]*(?:”|$)|「[^」]*(?:」|$)|\"[^\"]*(?:\"|$)"
    rf"|[a-z0-9_.()\-]*\.(?:{_ENGLISH['extensions']})(?![a-z0-9])"
)
_USER_BROUGHT = rf"({_BEFORE}{_WHO}{_BEFORE})(上传|附上|附加|分享|提供|发送)(了?)(.+)"
_CAME = (
    rf"{_BEFORE}(.+?)(?:(?:已经|已|刚刚|刚|已?[被由]用户)(?:成功)?上传(?:成功|完成|完毕|到(?:本次|当前)?(?:会话|对话)中?)?|"
    "上传(?:成功|完成|完毕))了?"
)
_LISTED = rf"(?:用户)?(?:已?上传的?(?:{_FILES})*|附件):(.+)"
_HOLDS = (
    rf"(?:该|此|这份|这个|这些|这张)?{_WHO}{_BEFORE}上传的(.+?)(?:中|里)?(?:主要)?"
    rf"(?:{_CHINESE['shows']}|[是为](?=[\0\1]))(.*)"
)
_FILES_ALONE = (
    rf"[\w%-]{{0,16}}?(?:{_FILES}|\0)+(?:{_CALLED}[\w-]{{0,30}})?[\0\1]?"
    rf"(?:(?:{_CHINESE['purposes']})\w{{0,6}}(?:{_CHINESE['tasks']}))?"
)
_COUNTED = rf"[一二两三四五六七八九十几多数0-9]|若干|另|\0|{_FILES}|{_CALLED}"


def is_chinese_event(plain: str) -> bool:
    """Say whether a normalised, casefolded sentence only says that a file came."""
    text = re.sub(_NAME, _mark, "".join(plain.split()))
    if brought := re.fullmatch(_USER_BROUGHT, text):
        lead, verb, done, rest = brought.groups()
        strong = verb in {"上传", "附上", "附加"} or "附件" in rest or "\0" in rest
        if strong and (done or "已" in lead) and _names_files(rest):
            return True
    if holds := re.fullmatch(_HOLDS, text):
        return _names_files(holds[1]) and not re.search(_CHINESE["else"], holds[2])
    return any(_names_files(found[1]) for shape in (_CAME, _LISTED) if (found := re.fullmatch(shape, text)))


def _mark(name: re.Match[str]) -> str:
    return "\0" if FILE_NAME.fullmatch(name[0].strip('《》“”「」"')) else "\1"


def _names_files(phrase: str) -> bool:
    """Say whether a phrase names files and nothing besides; what stands before its last 的 describes them."""
    own = re.match(_CHINESE["own"], phrase)
    phrase = phrase[own.end() if own else 0 :]
    described, _, nouns = phrase.rpartition("的")
    # "她的简历" is her file; "她的狗的照片" says that she has a dog.
    if re.search(_CHINESE["more"], phrase) or "," in described or (own and described):
        return False
    pieces = re.split(_CHINESE["joints"], nouns.replace(")", ""))
    if not re.fullmatch(_FILES_ALONE, pieces[0]):
        return False
    return all(re.match(_COUNTED, piece) and re.fullmatch(_FILES_ALONE, piece) for piece in pieces[1:])
