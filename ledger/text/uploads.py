"""Uploads kept out of memory: a file lives as long as its session, so a memory that it was uploaded misleads later.

A sentence that only says "a file was uploaded" is told from one about the user, in English and Chinese, and taken out
of a summary. (What a host writes into a message about files is cut before anything is learned from it: see `blocks`.)
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

__all__ = ["is_upload_event", "scrub_uploads"]


def _all(words: str) -> frozenset[str]:
    return frozenset(words.split())


_MAX_SENTENCE = 400
"""A sentence longer than this says more than that a file came; the bound also keeps every pattern below cheap."""
_REACH = 8
"""Words within which the noun of a phrase, or the verb after it, has to come."""
_NEAR = 5
"""Words within which a preposition has to reach what makes it harmless ("in the current session")."""
_CROWD = 1000
_YEARS = range(1900, 2101)

_ENDERS = ".!?。！？"
_CLOSERS = "\"'”’»)]}」』）】》*_"
_TRAILING = _ENDERS + _CLOSERS + "…"
_LIST_NUMBER = re.compile(r"\d{1,3}[.)]\s+")
_EXTENSIONS = (
    "pdf|docx?|xlsx?|pptx?|od[stp]|rtf|epub|csv|tsv|txt|md|rst|jsonl?|xml|ya?ml|toml|ini|cfg|html?|css|sql|log|eml|"
    "png|jpe?g|gif|webp|svg|bmp|tiff?|heic|psd|mp[34]|m4a|wav|ogg|flac|mov|avi|mkv|webm|zip|tar|gz|tgz|rar|7z|parquet|"
    "pyi?|ipynb|jsx?|tsx?|java|cpp|rs|sh|db|sqlite"
)
_FILE_NAME = re.compile(rf".+\.(?:{_EXTENSIONS})")
_TOKEN = re.compile(r"""(?:"[^"]*(?:"|$)|'[^']*(?:'|$)|“[^”]*(?:”|$)|`[^`]*(?:`|$))|[^\s,;:()—–]+|[,;:()—–]""")

# A name and a title may hold any word at all; as these marks they cannot be mistaken for grammar.
_FILE = "\0file"
_TITLE = "\0title"

_WHO = _all("user human i i've he he's she she's they they've")
_HELPERS = _all("has have had just also already recently now then today successfully earlier newly again")
_BROUGHT = _all("uploaded attached reuploaded re-uploaded user-uploaded")
_GAVE = _all("shared provided sent")
_ATTACHMENTS = _all("attachment attachments")
_FILES = _ATTACHMENTS | _all(
    "file files document documents doc docs pdf pdfs image images picture pictures photo photos photograph photographs "
    "screenshot screenshots spreadsheet spreadsheets csv csvs json video videos recording recordings audio zip archive "
    "archives dataset datasets presentation presentations slides resume resumes résumé résumés cv report reports log "
    "logs transcript transcripts contract contracts invoice invoices scan scans diagram diagrams"
)
_MARKED = _all("the this these those both his her their my user's")
_ARTICLES = _MARKED | _all(
    "a an that some several many multiple few all another one two three four five six seven eight nine ten additional"
)
_HEAPS = _all("couple number set series batch bunch pair collection copy all some one two few")
_BE = _all("is are was were")
_FINITE = _BE | _all("am be been has have had do does did will would can could should may might must")
_PERSONS = _all("user he she they i we you it him them me us his her their my our your user's he's she's they're i'm")
_CLAUSES = _all(
    "; — – - but however because since so while although though after before when where who whose whom if unless until"
)
_HABITS = _all(
    "every each always often usually regularly frequently sometimes never not nightly daily weekly monthly yearly "
    "annually yesterday ago last hundreds thousand thousands million millions billion billions"
)
_JOINTS = _all(", : and or plus & ( )")
_SHOWS = _all(
    "contain contains contained include includes included shows showed describe describes described lists listed "
    "covers covered discuss discusses discussed details detailed outlines outlined explain explains explained mention "
    "mentions mentioned presents presented has"
)
_DESCRIBES = _all(
    "of about with from named called titled entitled labeled labelled containing including showing describing "
    "detailing regarding concerning covering outlining listing explaining depicting comparing"
)
_IDENTIFIES = _all("a an the about from named called titled entitled") | {_FILE, _TITLE}
_SESSION = _all("session conversation chat thread message dialogue assistant")
_PURPOSES = _all(
    "review analysis verification reference processing testing context summary summarization feedback comparison "
    "discussion debugging inspection attachment attachments"
)
_ALLOWED = {
    "to": _SESSION | _all("analyze analyse review summarize summarise verify check test"),
    "into": _SESSION,
    "in": _SESSION | _all("format"),
    "during": _SESSION,
    "within": _SESSION,
    "for": _PURPOSES,
    "as": _PURPOSES,
    "by": _all("user"),
    **dict.fromkeys(_all("onto at on via through using inside under over"), frozenset[str]()),
}
_AFTER_NOUN = (
    _DESCRIBES | _SHOWS | _JOINTS | _CLAUSES | _FINITE | _BROUGHT | _HELPERS | _ALLOWED.keys() | _all("that which here")
)
# "Detailed" may stand before a noun ("a detailed report"), "details" is a verb there.
_NOT_IN_NOUN = (
    (_AFTER_NOUN - {"that"} - {word for word in _SHOWS if not word.endswith("s")})
    | _HABITS
    | _all("user he she they i we you it")
)
_SAYS_MORE = _PERSONS | _CLAUSES | _HABITS | _FINITE


def is_upload_event(sentence: str) -> bool:
    """Tell whether the point of a sentence is that a file was uploaded or attached in this session.

    Four shapes count, in English and in Chinese: the user brought a file ("User uploaded two PDFs", "用户上传了文件"),
    a file was brought ("A file named x.txt was uploaded", "文件已上传"), a list of files ("Uploaded files: a.csv"), and
    what an uploaded file holds ("The uploaded document contains…"). "Shared", "provided" and "sent" count only with an
    attachment or a file name.

    The whole sentence has to fit: a lost fact cannot be had back, a stray upload can be undone. So it is *no* event as
    soon as it says something else as well: a second clause ("… and works at Acme"), somebody's possession outside the
    file itself ("a photo of her dog"), a destination outside the session ("to YouTube", "到博客"), a time or a habit
    ("last year", "nightly", "每天"), a crowd of files ("4 million photos"), somebody other than the user (a name,
    "users"), or a service, a script or a module that deals with uploads. Present tense is taken for a habit. Marks and
    list numbers before the sentence, and closing marks after it, do not matter.
    """
    core = _core(sentence)
    if not core or len(core) > _MAX_SENTENCE or "\n" in core or sum(1 for _ in _sentences(core)) > 1:
        return False
    plain = unicodedata.normalize("NFKC", core).casefold()
    if "上传" in plain or "上傳" in plain or "附" in plain or "了" in plain:
        return _chinese(plain.replace("上傳", "上传"))
    words = _after_lead_in(_english_words(plain))
    return bool(words) and any(shape(words) for shape in (_user_brought, _file_came, _file_list, _file_holds))


def _core(sentence: str) -> str:
    """Return the sentence from its first word to its last.

    `scrub_uploads` relies on a sentence being judged the same whatever marks stand around it: taking a sentence out may
    move a mark from one neighbour to the other.
    """
    at = 0
    while at < len(sentence):
        if number := _LIST_NUMBER.match(sentence, at):
            at = number.end()
        elif sentence[at].isalnum():
            break
        else:
            at += 1
    end = len(sentence)
    while end > at and (sentence[end - 1] in _TRAILING or sentence[end - 1].isspace()):
        end -= 1
    return sentence[at:end]


def _english_words(plain: str) -> list[str]:
    words = []
    for token in _TOKEN.findall(plain.replace("‘", "'").replace("’", "'")):
        bare = token.strip("\"'“”`*_[]!?.")
        if _FILE_NAME.fullmatch(bare):
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
    """Tell whether the words behind a file only say what the file is, or that it came into this session."""
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
    """Tell whether what follows a comma or an "and" is one more file, or more about the same one."""
    at = _skip(words, 0, _JOINTS)
    if at >= len(words):
        return False
    about = words[at] in _DESCRIBES or words[at] in _ALLOWED or words[at] in {"that", "which"}
    return about or _HELPERS.issuperset(words[at:]) or (_begins_noun(words[at]) and bool(_noun(words, at)))


def _only_its_contents(words: list[str]) -> bool:
    """Tell whether what an uploaded file "contains" goes on without a clause about anybody or anything else."""
    joined = False
    for before, word in zip(["", *words], words, strict=False):
        if word in _PERSONS or word in _CLAUSES:
            return False
        if joined and word in _FINITE and before not in _JOINTS:
            return False
        joined = joined or word in _JOINTS
    return True


# --- the same in Chinese ----------------------------------------------------------------------------------------------

# Left as texts: `re` compiles and keeps them with the first Chinese sentence, so an import does not wait for them.
_ZH_FILES = (
    "文件|文档|文檔|附件|图片|圖片|照片|截图|截圖|图像|表格|视频|音频|录音|压缩包|简历|报告|资料|数据集|演示文稿|"
    "幻灯片|日志|论文|合同|发票|扫描件|pdf|csv|excel|word|ppt"
)
# Possessive, since 已|已经 and the like can be cut in more ways than one.
_ZH_LEAD = (
    "(?:在?(?:本次|本轮|这次|此次|当前|该|此)?(?:会话|对话|聊天)(?:中|里|内|期间)?|刚才|刚|已经|已|今天|最近|还|也|又|"
    "另外|此外|同时|成功|一共|共|,)*+"
)
_ZH_WHO = "(?:(?:该|此|这位)?用户|他|她|我|ta)?"
_ZH_NAME = (
    rf"《[^》]*(?:》|$)|“[^”]*(?:”|$)|「[^」]*(?:」|$)|\"[^\"]*(?:\"|$)|[a-z0-9_.()\-]*\.(?:{_EXTENSIONS})(?![a-z0-9])"
)
_ZH_BROUGHT = rf"({_ZH_LEAD}{_ZH_WHO}{_ZH_LEAD})(上传|附上|附加|分享|提供|发送)(了?)(.+)"
_ZH_CAME = (
    rf"{_ZH_LEAD}(.+?)(?:(?:已经|已|刚刚|刚|已?[被由]用户)(?:成功)?上传(?:成功|完成|完毕|到(?:本次|当前)?(?:会话|对话)中?)?|"
    "上传(?:成功|完成|完毕))了?"
)
_ZH_LIST = rf"(?:用户)?(?:已?上传的?(?:{_ZH_FILES})*|附件):(.+)"
_ZH_HOLDS = (
    rf"(?:该|此|这份|这个|这些|这张)?{_ZH_WHO}{_ZH_LEAD}上传的(.+?)(?:中|里)?(?:主要)?"
    r"(?:包含|包括|显示|描述|介绍|列出|讲述|记录|展示|涉及|名为|名叫|叫做|标题|内容|是一|是关于|[是为](?=[\0\1]))(.*)"
)
_ZH_OWN = "他的|她的|我的|自己的|其(?![他它余])"
_ZH_MORE = "(?<!其)他|[她我;到至给但并了在是每]|用户|因为|所以|去年|昨天|经常|喜欢|希望|[0-9百千]万|亿"
# Behind a comma Chinese drops the subject: "…包含数据，住在上海" would speak of the user again.
_ZH_ELSE = "(?<!其)他|[她我;但,并]|用户|因为|所以"
_ZH_JOINT = "以及|还有|[、,:(/&和与及]"
_ZH_NAMED = r"(?:名为|名叫|叫做|命名为|标题为|题为)"
_ZH_NOUN = (
    rf"[\w%-]{{0,16}}?(?:{_ZH_FILES}|\0)+(?:{_ZH_NAMED}[\w-]{{0,30}})?[\0\1]?"
    r"(?:(?:用于|以供|供|以便|用来)\w{0,6}(?:分析|参考|审阅|查看|总结|测试|验证|处理))?"
)
_ZH_COUNTED = rf"[一二两三四五六七八九十几多数0-9]|若干|另|\0|{_ZH_FILES}|{_ZH_NAMED}"


def _chinese(plain: str) -> bool:
    text = re.sub(_ZH_NAME, _zh_mark, "".join(plain.split()))
    if brought := re.fullmatch(_ZH_BROUGHT, text):
        lead, verb, done, rest = brought.groups()
        strong = verb in {"上传", "附上", "附加"} or "附件" in rest or "\0" in rest
        if strong and (done or "已" in lead) and _zh_files(rest):
            return True
    if holds := re.fullmatch(_ZH_HOLDS, text):
        return _zh_files(holds[1]) and not re.search(_ZH_ELSE, holds[2])
    return any(_zh_files(found[1]) for shape in (_ZH_CAME, _ZH_LIST) if (found := re.fullmatch(shape, text)))


def _zh_mark(name: re.Match[str]) -> str:
    return "\0" if _FILE_NAME.fullmatch(name[0].strip('《》“”「」"')) else "\1"


def _zh_files(phrase: str) -> bool:
    """Tell whether a phrase names files and nothing besides; what stands before its last 的 describes them."""
    own = re.match(_ZH_OWN, phrase)
    phrase = phrase[own.end() if own else 0 :]
    described, _, nouns = phrase.rpartition("的")
    # "她的简历" is her file; "她的狗的照片" says that she has a dog.
    if re.search(_ZH_MORE, phrase) or "," in described or (own and described):
        return False
    pieces = re.split(_ZH_JOINT, nouns.replace(")", ""))
    if not re.fullmatch(_ZH_NOUN, pieces[0]):
        return False
    return all(re.match(_ZH_COUNTED, piece) and re.fullmatch(_ZH_NOUN, piece) for piece in pieces[1:])


# --- a summary --------------------------------------------------------------------------------------------------------

# The look-behind lets a run of full stops be tried once, not once from each of its marks.
_END = re.compile(rf"(?<![{_ENDERS}])[{_ENDERS}]++[{re.escape(_CLOSERS)}]*+")
_WIDE_ENDERS = frozenset("。！？")
_LINE_START = re.compile(r"\s*(?:[-*+•]\s+|\d{1,3}[.)]\s+)?")
_SPACE = re.compile(r"\s*")
_LAST_WORD = re.compile(r"(?<![^\s(\[\"'])[^\s(\[\"']+$")
_ABBREVIATIONS = _all("e.g i.e vs mr mrs ms dr prof st fig cf al approx")
_LONGEST_ABBREVIATION = 8


def scrub_uploads(text: str) -> tuple[str, tuple[str, ...]]:
    """Return a summary without the sentences that are upload events, and those sentences in order.

    A sentence ends at `.`, `!` or `?` before a space, at `。`, `！` or `？`, and with its line; `report.pdf`, `v1.2`,
    "e.g." and an initial do not end one. What is taken out takes the space behind it along, and a line that is left
    empty goes whole, with its bullet; everything else keeps its own bytes. Without an upload event the text comes back
    unchanged to the byte.
    """
    removed: list[str] = []
    kept: list[str] = []
    gap = False
    for line in text.split("\n"):
        before = len(removed)
        rest = _scrub_line(line, removed)
        gone = len(removed) > before and not rest
        # A line that goes from between two blank ones would leave two blank lines in a row.
        if gone or (gap and not rest.strip() and not "".join(kept[-1:]).strip()):
            gap = True
            continue
        gap = False
        kept.append(rest)
    if not removed:
        return text, ()
    if gone:
        while kept and not kept[-1].strip():
            kept.pop()
        kept[-1:] = [line.removesuffix("\r") for line in kept[-1:]]
    return "\n".join(kept).lstrip(" \t"), tuple(removed)


def _scrub_line(line: str, removed: list[str]) -> str:
    """Return the line without its upload events, "" when nothing else was in it, and note those in `removed`."""
    start = _LINE_START.match(line)
    body_at = start.end() if start else 0
    kept: list[str] = []
    before = len(removed)
    last_went = False
    for sentence, space in _sentences(line[body_at:]):
        last_went = is_upload_event(sentence)
        if last_went:
            removed.append(sentence)
        else:
            kept.append(sentence + space)
    if len(removed) == before:
        return line
    if not kept:
        return ""
    rest = line[:body_at] + "".join(kept)
    return rest.rstrip() + ("\r" if line.endswith("\r") else "") if last_went else rest


def _sentences(body: str) -> Iterator[tuple[str, str]]:
    """Yield the sentences of one line, each with the space behind it."""
    at = 0
    for found in _END.finditer(body):
        end = found.end()
        spaced = end == len(body) or body[end].isspace()
        if _WIDE_ENDERS.isdisjoint(found[0]) and (not spaced or _abbreviates(body, found.start(), found[0])):
            continue
        after = _SPACE.match(body, end)
        next_at = after.end() if after else end
        yield body[at:end], body[end:next_at]
        at = next_at
    if at < len(body):
        rest = body[at:].rstrip()
        yield rest, body[at + len(rest) :]


def _abbreviates(body: str, stop: int, marks: str) -> bool:
    """Tell whether a full stop only ends an abbreviation or an initial."""
    word = _LAST_WORD.search(body[max(0, stop - _LONGEST_ABBREVIATION) : stop])
    if marks != "." or word is None:
        return False
    return word[0].casefold() in _ABBREVIATIONS or (len(word[0]) == 1 and word[0].isascii() and word[0].isalpha())
