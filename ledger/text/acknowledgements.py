"""Messages that say nothing: a bare "ok, thanks!" is answered, and nothing is to be learned from it."""

from __future__ import annotations

import re
import unicodedata
from typing import TypeAlias

__all__ = ["is_acknowledgement"]

_MAX_TEXT = 80
"""Characters; an acknowledgement that takes longer to say is about something."""

_WORD = re.compile(r"[\u3400-\u9fff]|[^\W_\u3400-\u9fff]+")
_LONG_RUN = re.compile(r"(.)\1{2,}")
_APOSTROPHES = str.maketrans("", "", "'’‘`´")
_DENIALS = frozenset("👎❌🚫✖✗✘⛔❎🙅")
"""Signs that answer no; every other emoji only decorates."""

_Phrase: TypeAlias = tuple[str, ...]


def _phrases(table: str) -> frozenset[_Phrase]:
    return frozenset(tuple(_WORD.findall(phrase)) for phrase in table.split("|"))


_SAID = _phrases(
    "ok|okay|okey|okie|okie dokie|okey dokey|k|kk|oki|alright|all right|right|all good|all clear|yes|yes please|yep|"
    "yup|yeah|yea|yah|ya|aye|uh huh|mhm|mm|hm|hmm|um|uh|ah|aah|oh|aha|huh|wow|sure|sure thing|of course|certainly|"
    "absolutely|definitely|totally|indeed|exactly|precisely|correct|true|agreed|i agree|understood|noted|roger|"
    "roger that|copy that|got it|got that|got you|gotcha|i got it|i got you|i see|i understand|i get it|i hear you|"
    "makes sense|sounds good|will do|works|works for me|fair|fair enough|good point|good idea|good call|"
    "good to know|nice to know|good job|great job|nice job|well done|good work|great work|nice work|good|fine|great|"
    "nice|cool|neat|sweet|perfect|excellent|awesome|amazing|wonderful|fantastic|brilliant|lovely|super|very well|"
    "no problem|no problems|no worries|no prob|np|thanks|thank you|thank u|thankyou|thanx|thank|thx|thnx|tnx|ty|tysm|"
    "tyvm|many thanks|thanks a million|cheers|ta|much appreciated|appreciated|appreciate it|appreciate that|"
    "i appreciate it|i appreciate that|helpful|that helps|this helps|youre welcome|you are welcome|welcome|"
    "youre right|you are right|haha|hahaha|hehe|lol|"
    "谢谢|谢谢你|谢谢您|谢谢大家|谢啦|谢了|多谢|感谢|感谢你|感谢您|非常感谢|十分感谢|太感谢了|万分感谢|谢谢你的帮助|谢谢您的帮助|"
    "好|好的|好吧|好呀|好啊|好嘞|好滴|好哒|好哦|好了|行|行吧|可以|可以的|嗯|嗯哼|恩|唔|哦|噢|喔|啊|哈|哈哈|呵呵|"
    "明白|明白了|我明白了|了解|了解了|我了解了|知道了|我知道了|懂了|我懂了|晓得了|清楚了|收到|没问题|没事|没关系|"
    "不客气|不用谢|是|是的|是啊|对|对的|对啊|没错|当然|当然可以|同意|有道理|原来如此|原来是这样|这样啊|太好了|"
    "太棒了|很好|非常好|不错|很不错|棒|真棒|很棒|赞|厉害|完美|辛苦了|辛苦你了|麻烦了|麻烦你了|"
    "謝謝|謝謝你|謝謝您|多謝|感謝|非常感謝|沒問題|沒事|沒關係|不客氣|對|對的|沒錯|當然|瞭解|瞭解了|太好了"
)
"""Each a whole acknowledgement; any row of them is one too."""
_BEFORE = _phrases(
    "that|thats|that is|it|its|it is|this is|sounds|looks|seems|really|very|so|pretty|quite|super|all|well|that sounds|"
    "that looks|it sounds|it looks"
)
"""Lead to an acknowledgement and are none alone ("that's" great)."""
_AFTER = _phrases(
    "so much|very much|a lot|lots|a ton|a bunch|a million|again|then|too|indeed|please|everyone|all|mate|man|buddy|"
    "dude|bro|my friend|friend|sir|for that|for this|for it|for everything|for your help|for the help|"
    "for all your help|for helping|for helping me|for your time|for the info|for the information|for the explanation|"
    "for the answer|for the clarification|for clarifying|for explaining|for letting me know|for the update|"
    "for the tip|with me|by me|for me|to me|啦|吧|呀|啊|哦|噢|哟|嘞|咯|哈|了"
)
"""Round off an acknowledgement and are none alone (thanks "so much")."""
_LONGEST = max(map(len, _SAID | _BEFORE | _AFTER))
_FIRST = frozenset((phrase[0],) for phrase in _SAID | _BEFORE | _AFTER)
"""The words that begin any of them: most messages have another, and are told by that at once."""


def is_acknowledgement(text: str) -> bool:
    """Tell whether a message is nothing but a bare acknowledgement, in English or in Chinese.

    After normalising (full-width forms, case, punctuation, emoji) the text has to be a row of known phrases and nothing
    else: "ok", "great, thanks a lot", "好的，谢谢！". A text without any word, like "👍" or "…", is one as well. One
    word beyond that makes it a message with something in it, and so does a denial ("no", "not really", 👎), for a
    denial answers a question. A letter drawn out ("yesss", "okkkk") counts as said once or twice. A text of more than
    80 characters is never one.
    """
    text = text.strip()
    if len(text) > _MAX_TEXT or not _DENIALS.isdisjoint(text):
        return False
    words = _WORD.findall(unicodedata.normalize("NFKC", text).casefold().translate(_APOSTROPHES))
    drawn_out = any(map(_LONG_RUN.search, words))
    # whole: the words so far are a row of acknowledgements; led: besides, words that lead to the next one.
    whole, led = {0}, set[int]()
    for at in range(len(words)):
        if (at not in led and at not in whole) or _FIRST.isdisjoint(
            _spellings(words[at : at + 1], drawn_out=drawn_out)
        ):
            continue
        for length in range(1, _LONGEST + 1):
            spellings = _spellings(words[at : at + length], drawn_out=drawn_out)
            if not _SAID.isdisjoint(spellings) or (at and at in whole and not _AFTER.isdisjoint(spellings)):
                whole.add(at + length)
            if not _BEFORE.isdisjoint(spellings):
                led.add(at + length)
    return len(words) in whole


def _spellings(phrase: list[str], *, drawn_out: bool) -> set[_Phrase]:
    """Return the ways a phrase may be meant: as it stands, and with what was drawn out said twice or once.

    Without `drawn_out` no letter of it stands three times in a row.
    """
    last = phrase[-1]
    undoubled = last[:-1] if last[-2:-1] == last[-1:] else last
    if not drawn_out:
        return {tuple(phrase), (*phrase[:-1], undoubled)}
    return {
        tuple(phrase),
        (*phrase[:-1], undoubled),
        tuple(_LONG_RUN.sub(r"\1\1", word) for word in phrase),
        tuple(_LONG_RUN.sub(r"\1", word) for word in phrase),
    }
