"""Signal detector: finds corrections, preferences, goals and the like in the user's latest messages.

Signals become hints for the model and set the order of the queue. The patterns are data: one TOML file per signal in
`patterns`, which a configured folder may override. A file holds lists of regular expressions under any names
(`english`, `chinese`). A sentence that matches a pattern under `unless` shows no signal. `patterns/correction.toml`
describes the text that patterns are matched against, and how to write one.

The folder may hold DeerFlow's own YAML files instead, whose patterns are matched against a message as it is. Its
`trivial.yaml` names messages that nothing is learned from, nor from the answers to them.
"""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from backstory.ledger.core.errors import ConfigError
from backstory.ledger.core.events import Turn
from backstory.ledger.extraction.deerflow_files import TRIVIAL, compiled, read_patterns
from backstory.ledger.text.acknowledgements import is_acknowledgement
from backstory.ledger.text.scaffolding import FILE as SCAFFOLDING

_HEAD = 2_000
_TAIL = 1_000
"""Characters of a message that are read; text pasted in between is rarely about the user."""
_MAX_SENTENCE = 300

_TRADITIONAL = (
    "對錯應該說這個樣麼還請別歡愛總從現後來們為會記誤問給寫開關學習職業師醫護書買減達實夢標計劃畫規願準備換選擇擬據採確終決"
    "號幫謝讓讀譯釋簡單詳細點繼續聽覺認講錄聯絡語漢體國歲結離養貓隻條兒媽爺孫專歷處長東車過進遠運動訓練賺錢攢創辭轉論題項"
    "煩務產氣熱無沒於與裡裏裝戶滿討厭惡慣傾屬獨線網頁電腦話碼級經營樂擔負責歸斷萬幾億兩雙節飯館飲麵魚雞鳥馬龍豬頭臉邊測試"
    "驗檢嗎誰甚妳著係僅優價報場壞復態慮敗數權爭獎獲環盡眾碩穩糾約組統維緊罵聲舊興藝藥術補親觀訂許評詞課調談證識議貴資賣質"
    "購趕輕輸農郵鄉鐘門閒間際險隨難雜靜順須預領顧風騎髮發齡簽戀並遲煙壓鬱勞衛羅張灣廣適當內員帶導圖壽聞強種夠剛區廳堅棄懷戰時畢薦設訴貫賞輩遞鄰鍛銷隊絕綜編懼機構檔潔戲溝遊滾將異辦變團衝勁複徹曉嚴臺鬧輯納"
)
_SIMPLIFIED = (
    "对错应该说这个样么还请别欢爱总从现后来们为会记误问给写开关学习职业师医护书买减达实梦标计划画规愿准备换选择拟据采确终决"
    "号帮谢让读译释简单详细点继续听觉认讲录联络语汉体国岁结离养猫只条儿妈爷孙专历处长东车过进远运动训练赚钱攒创辞转论题项"
    "烦务产气热无没于与里里装户满讨厌恶惯倾属独线网页电脑话码级经营乐担负责归断万几亿两双节饭馆饮面鱼鸡鸟马龙猪头脸边测试"
    "验检吗谁什你着系仅优价报场坏复态虑败数权争奖获环尽众硕稳纠约组统维紧骂声旧兴艺药术补亲观订许评词课调谈证识议贵资卖质"
    "购赶轻输农邮乡钟门闲间际险随难杂静顺须预领顾风骑发发龄签恋并迟烟压郁劳卫罗张湾广适当内员带导图寿闻强种够刚区厅坚弃怀战时毕荐设诉贯赏辈递邻锻销队绝综编惧机构档洁戏沟游滚将异办变团冲劲复彻晓严台闹辑纳"
)
_FOLD = str.maketrans(_TRADITIONAL + "’‘ʼ`´", _SIMPLIFIED + "'''''")

_CODE = re.compile(r"```.*?(?:```|\Z)|`[^`\n]*`", re.DOTALL)
_QUOTED_LINE = re.compile(r"^[ \t]*>.*$", re.MULTILINE)
_QUOTED = re.compile(
    r"“[^”\n]*(?:”|$)|「[^」\n]*(?:」|$)|『[^』\n]*(?:』|$)|《[^》\n]*(?:》|$)|(?<![a-z0-9])\"[^\"\n]*(?:\"|$)"
    r"|(?<!\w)'(?:[^'\n]|(?<=\w)'(?=\w))+'(?!\w)",
    re.MULTILINE,
)
_SENTENCE_END = re.compile(r"(?<=[.!?。;…~])(?<!\.)|(?<=\.)(?!\w)|\n")
_CLOSING = ".!。;…~ \t*_-)("

_TAGS = re.compile(
    r"right|correct|no|huh|eh|true|don't you think|(?:is|are|was|were|am|do|does|did|have|has|can|wo|will)(?:n't)? "
    r"(?:it|that|i|you|we|they|he|she)|对吗|对吧|是吗|是吧|"
    r"是不是|对不对|没错吧|对么|是么"
)
"""Question tags: they turn the whole sentence before them into a question."""
_CONSENT = re.compile(r"ok|okay|alright|all right|deal|please|will you|would you|好吗|好么|好不好|行吗|可以吗|行不行")
"""Tags that ask for consent: the words before them are still a statement."""
_ASKS = re.compile(
    r"(?:and |but |so |or |then |hey |hi |wait |please )*(?:"
    r"(?:is|are|was|were|am|does|did|can|could|should|would|will|have|has|isn't|aren't|don't|doesn't|can't|won't|shall)"
    r" (?:i|you|he|she|it|we|they|that|this|there|the|a|an|my|your|any\w*|some\w*)\b"
    r"|do (?:i|you|we|they|people|the|my|your)\b"
    r"|(?:what|why|how|who|which|where|when|whose)(?:'s|'re| is| are| was| do| does| did| should| can| could| would"
    r"| will| has| have| much| many| about| to| if)\b|any (?:idea|chance|tips?)\b"
    r"|(?:why|how come|whether|what if|i wonder)\b)"
    r"|(?:为什么|怎么|什么|谁|哪|是不是|是否|能不能|可不可以|会不会|要不要|有没有|难道|请问|你觉得|你认为|如何)"
)
_REQUEST = re.compile(r" (?=(?:can|could|would|will) you\b)")
"""The beginning of a request that no comma separates from the words before it."""
_ASKING_END = re.compile(r"(?:吗|么|嘛|呢|(?:对不对|是不是|好不好|行不行|可不可以|能不能|怎么办|什么|不是吧))$")
_SUPPOSES = re.compile(
    r"(?:and |but |so |or |even |only |then |because |that )*(?:if|unless|whether|in case|suppose|supposing|imagine|"
    r"assuming|let's say|when(?:ever)? someone|as if)\b"
    r"|(?:但|那|就)?(?:如果|要是|假如|假设|假使|万一|倘若|要不是|若是|即使|哪怕)"
)
_OTHERS_SAY = re.compile(
    r"(?<![\w'])(?!(?:i|we|you|i've|we've|i'd|just|already|also|clearly|really|actually|specifically|have|has|that|never|as|"
    r"be|can|to|not)\b)[\w']+ "
    r"(?:said|says|told|tells|asked|asks|claims|claimed|thinks|thought|wrote|writes|insists|insisted|replied|answered|"
    r"complained|shouted|believes|believed|mentioned|argues|argued|goes like|reads)\b.*"
    r"|\b(?:people|they|some|many|critics|users|folks|docs|lyrics|experts|doctors|others)(?: often| always| would|"
    r" might| will| sometimes)? (?:say|think|claim|believe|tell|ask|argue)\b.*"
    r"|\b(?:according to|in the words of|quote|the song goes|it says|he was like|she was like)\b.*"
    r"|(?:他|她|他们|她们|人家|老板|老师|妈|爸|父亲|母亲|奶奶|爷爷|朋友|同事|同学|有人|有些人|别人|客户|经理|领导|医生|大家|网友|网上|文章|书上?|文档|"
    r"老公|老婆|妻子|丈夫|儿子|女儿|孩子|哥哥?|姐姐?|弟弟?|妹妹?|室友|邻居|专家|面试官|导师|教授|[\u4e00-\u9fff]总|小[\u4e00-\u9fff]|老[\u4e00-\u9fff])"
    r"[^,\n我你]{0,6}?(?:说|问|觉得|认为|表示|回答|告诉|写道|写着|提到|回复|喊|骂|讲|抱怨|以为).*"
)
_YOU_SAY = re.compile(
    r"\byou(?:'ve| have|'d)? (?:just |already |always |once )*(?:said|told|wrote|claimed|mentioned|suggested|asked|"
    r"think|thought)\b[^,\n]*|你(?:刚才|刚刚|之前|上次|总|老|又)*(?:说过?|觉得|认为|问|以为|告诉)(?!得|的|错)[^,\n]*"
)


def simplified(text: str) -> str:
    """Replace traditional Chinese characters by simplified ones, and typographic apostrophes by '."""
    return text.translate(_FOLD)


def statements(text: str) -> str:
    """Return the statements of a message, one sentence per line, in the form that patterns are matched against.

    The text is NFKC, casefolded, in simplified characters. Clauses are separated by ", ", and sentences have no final
    mark. A quote or a piece of code becomes `_`, which counts as a word. Of a message of more than 3,000 characters
    only the head and the tail are read.
    """
    return "\n".join(filter(None, map(_stated, _SENTENCE_END.split(_plain(_cut(text))))))


def _cut(text: str) -> str:
    return text if len(text) <= _HEAD + _TAIL else f"{text[:_HEAD]}\n{text[-_TAIL:]}"


def _plain(text: str) -> str:
    plain = _QUOTED_LINE.sub("", _CODE.sub("_", text))
    # NFKC turns some single characters into a whole sentence, so the text is cut again.
    return _QUOTED.sub("_", simplified(_cut(unicodedata.normalize("NFKC", plain).casefold())))


def _stated(sentence: str) -> str:
    """Return the part of a sentence that is a statement; empty where there is none."""
    asks = "?" in sentence[-4:]
    bare = sentence.strip(f"{_CLOSING}?")[:_MAX_SENTENCE]
    if not bare:
        return ""
    clauses = [" ".join(clause.split()) for clause in (_REQUEST.sub(", ", bare) if asks else bare).split(",")]
    if asks and len(clauses) > 1 and _TAGS.fullmatch(clauses[-1]):
        return ""
    if len(clauses) > 1 and _CONSENT.fullmatch(clauses[-1]):
        asks = False
    if asks:
        clauses.pop()
    if not clauses or _ASKS.match(clauses[0]):
        return ""
    kept = [c for c in clauses if not (_ASKS.match(c) or _ASKING_END.search(c) or _SUPPOSES.match(c))]
    return _YOU_SAY.sub("_", _OTHERS_SAY.sub("_", ", ".join(kept)))


SIGNALS = ("correction", "reinforcement", "preference", "identity", "goal", "decision")
"""Every signal, in the order in which they are reported."""

_PACKAGED = Path(__file__).parent / "patterns"
_ENDINGS = (".toml", ".yaml", ".yml")
_WINDOW = 6
_EXCEPTIONS = "unless"
_TRAIL = " \t\n\r.。,，!！?？;；"
"""What may stand behind a trivial message."""

_Patterns = tuple[re.Pattern[str], ...]
_Stamp = tuple[str, int, int]


class _Rule(NamedTuple):
    """The patterns that show a signal, and those that exclude a sentence from it.

    `literal` ones are matched against a message as it is.
    """

    shows: _Patterns
    unless: _Patterns = ()
    literal: bool = False


class Signals:
    """The patterns of every signal, and of trivial messages; immutable, so safe for threads."""

    def __init__(self, rules: Mapping[str, _Rule], trivial: _Patterns = ()) -> None:
        self._rules = rules
        self._trivial = trivial

    def seen_in(self, turns: Sequence[Turn]) -> tuple[str, ...]:
        """Return the signals in the user's turns among the last six messages, in the order of `SIGNALS`.

        An acknowledgement shows no signal. Questions, quotes and the words of others are ignored.
        """
        latest = islice((turn for turn in reversed(turns) if turn.role in ("user", "assistant")), _WINDOW)
        said = [turn.content for turn in latest if turn.role == "user" and not is_acknowledgement(turn.content)]
        stated = [statements(text) for text in said]
        return tuple(name for name in SIGNALS if self._is_shown(self._rules[name], said, stated))

    def _is_shown(self, rule: _Rule, said: Sequence[str], stated: Sequence[str]) -> bool:
        if rule.literal:
            return any(pattern.search(text.strip()) for text in said for pattern in rule.shows)
        return any(_shows(rule, text) for text in stated)

    def telling(self, turns: Sequence[Turn]) -> Sequence[Turn]:
        """Return the turns without trivial messages of the user and the answers to them."""
        if not self._trivial:
            return turns
        left, answers_trivial = [], False
        for turn in turns:
            if turn.role == "user":
                text = turn.content.strip().rstrip(_TRAIL)
                answers_trivial = bool(text) and any(pattern.fullmatch(text) for pattern in self._trivial)
            if not answers_trivial:
                left.append(turn)
        return left


def _shows(rule: _Rule, stated: str) -> bool:
    if not any(pattern.search(stated) for pattern in rule.shows):
        return False
    if not any(pattern.search(stated) for pattern in rule.unless):
        return True
    # An exception applies only to its own sentence.
    left = "\n".join(line for line in stated.split("\n") if not any(pattern.search(line) for pattern in rule.unless))
    return any(pattern.search(left) for pattern in rule.shows)


def load_signals(folder: Path | None = None) -> Signals:
    """Return the packaged patterns; a file of the folder replaces the packaged one of the same name.

    The patterns are cached, and read again when a file of the folder changes.

    Raises:
        ConfigError: The folder is missing, one of its files cannot be read or is not named after a signal, or an entry
            is not a valid pattern; the message names the file and the entry.
    """
    return _load(folder, () if folder is None else _stamps(folder))


def _stamps(folder: Path) -> tuple[_Stamp, ...]:
    """Return name, modification time and size of each file of patterns in a folder."""
    try:
        with os.scandir(folder) as entries:
            files = [(e.name, e.stat().st_mtime_ns, e.stat().st_size) for e in entries if e.name.endswith(_ENDINGS)]
    except OSError as error:
        raise ConfigError(
            f"the folder of signal patterns {folder} cannot be read: {error.strerror}; set patterns_dir to one that can"
        ) from error
    known = {*(f"{name}.toml" for name in SIGNALS), *(f"{name}.yaml" for name in (*SIGNALS, TRIVIAL))}
    names = {name for name, _, _ in files}
    for name in names:
        if name.endswith(".toml") and (twin := f"{name.removesuffix('.toml')}.yaml") in names:
            raise ConfigError(
                f"{folder / name} and {folder / twin} override the same signal patterns: keep one of them"
            )
    for name, _, _ in files:
        if name not in known and name != SCAFFOLDING:
            raise ConfigError(
                f"{folder / name} overrides no signal patterns; the files that can be overridden are "
                f"{', '.join(sorted(known))}, and {SCAFFOLDING} adds to what no person said: rename it or move it away"
            )
    return tuple(sorted(files))


@lru_cache(maxsize=8)
def _load(folder: Path | None, stamps: tuple[_Stamp, ...]) -> Signals:
    own = {name for name, _, _ in stamps}

    def rule(name: str) -> _Rule:
        if folder is not None and f"{name}.yaml" in own:
            return _Rule(tuple(read_patterns(folder / f"{name}.yaml")), literal=True)
        file = f"{name}.toml"
        return _rule((folder if folder is not None and file in own else _PACKAGED) / file)

    trivial = tuple(read_patterns(folder / f"{TRIVIAL}.yaml")) if folder and f"{TRIVIAL}.yaml" in own else ()
    return Signals({name: rule(name) for name in SIGNALS}, trivial)


def _rule(path: Path) -> _Rule:
    import tomllib

    try:
        groups = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"the file of signal patterns {path} cannot be read: {error}") from error
    shows: list[re.Pattern[str]] = []
    unless: list[re.Pattern[str]] = []
    for group, entries in groups.items():
        if not isinstance(entries, list):
            raise ConfigError(f"{path}: {group} must be a list of regular expressions, got {type(entries).__name__}")
        found = unless if group == _EXCEPTIONS else shows
        found += [_pattern(entry, f"{path}: entry {n} of {group}") for n, entry in enumerate(entries, 1)]
    return _Rule(tuple(shows), tuple(unless))


def _pattern(entry: object, where: str) -> re.Pattern[str]:
    if not isinstance(entry, str):
        raise ConfigError(f"{where} must be a regular expression in quotes, got {type(entry).__name__}")
    # The text is casefolded, so a capital letter would never match it.
    case = re.NOFLAG if entry == entry.lower() else re.IGNORECASE
    return compiled(simplified(entry), re.MULTILINE | case, f"{where}, {entry[:80]!r},")
