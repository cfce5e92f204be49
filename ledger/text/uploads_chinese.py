"""Chinese patterns of upload sentences: which of them only say that a file came.

The words are in `uploads_chinese.toml`.
"""

from __future__ import annotations

import re

from backstory.ledger.text.uploads_english import EXTENSIONS, FILE_NAME
from backstory.ledger.text.word_lists import word_lists

_LISTS = {name: "|".join(words) for name, words in word_lists("uploads_chinese").items()}
_FILES = _LISTS["files"]
_NAMED = f"(?:{_LISTS['named']})"
# Possessive, since 已|已经 and the like can be cut in more ways than one.
_LEAD = f"(?:{_LISTS['lead']})*+"
_WHO = f"(?:{_LISTS['who']})?"
_NAME = (
    rf"《[^》]*(?:》|$)|“[^”]*(?:”|$)|「[^」]*(?:」|$)|\"[^\"]*(?:\"|$)|[a-z0-9_.()\-]*\.(?:{EXTENSIONS})(?![a-z0-9])"
)
_BROUGHT = rf"({_LEAD}{_WHO}{_LEAD})(上传|附上|附加|分享|提供|发送)(了?)(.+)"
_CAME = (
    rf"{_LEAD}(.+?)(?:(?:已经|已|刚刚|刚|已?[被由]用户)(?:成功)?上传(?:成功|完成|完毕|到(?:本次|当前)?(?:会话|对话)中?)?|"
    "上传(?:成功|完成|完毕))了?"
)
_LIST = rf"(?:用户)?(?:已?上传的?(?:{_FILES})*|附件):(.+)"
_HOLDS = (
    rf"(?:该|此|这份|这个|这些|这张)?{_WHO}{_LEAD}上传的(.+?)(?:中|里)?(?:主要)?"
    rf"(?:{_LISTS['shows']}|[是为](?=[\0\1]))(.*)"
)
_NOUN = (
    rf"[\w%-]{{0,16}}?(?:{_FILES}|\0)+(?:{_NAMED}[\w-]{{0,30}})?[\0\1]?"
    rf"(?:(?:{_LISTS['purposes']})\w{{0,6}}(?:{_LISTS['tasks']}))?"
)
_COUNTED = rf"[一二两三四五六七八九十几多数0-9]|若干|另|\0|{_FILES}|{_NAMED}"


def is_chinese_event(plain: str) -> bool:
    """Say whether a normalised, casefolded sentence only says that a file came."""
    text = re.sub(_NAME, _mark, "".join(plain.split()))
    if brought := re.fullmatch(_BROUGHT, text):
        lead, verb, done, rest = brought.groups()
        strong = verb in {"上传", "附上", "附加"} or "附件" in rest or "\0" in rest
        if strong and (done or "已" in lead) and _names_files(rest):
            return True
    if holds := re.fullmatch(_HOLDS, text):
        return _names_files(holds[1]) and not re.search(_LISTS["else"], holds[2])
    return any(_names_files(found[1]) for shape in (_CAME, _LIST) if (found := re.fullmatch(shape, text)))


def _mark(name: re.Match[str]) -> str:
    return "\0" if FILE_NAME.fullmatch(name[0].strip('《》“”「」"')) else "\1"


def _names_files(phrase: str) -> bool:
    """Say whether a phrase names files and nothing besides; what stands before its last 的 describes them."""
    own = re.match(_LISTS["own"], phrase)
    phrase = phrase[own.end() if own else 0 :]
    described, _, nouns = phrase.rpartition("的")
    # "她的简历" is her file; "她的狗的照片" says that she has a dog.
    if re.search(_LISTS["more"], phrase) or "," in described or (own and described):
        return False
    pieces = re.split(_LISTS["joints"], nouns.replace(")", ""))
    if not re.fullmatch(_NOUN, pieces[0]):
        return False
    return all(re.match(_COUNTED, piece) and re.fullmatch(_NOUN, piece) for piece in pieces[1:])
