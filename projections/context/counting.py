r"""Token counters: count a block line by line, exactly.

A vocabulary first splits a text into pieces, by a regular expression that looks ahead and never back. In the
vocabularies used here, a piece that holds a line break ends with the last break of a run: the break belongs to the
characters before it (`)\n`), or is a piece of its own. Only a slash at the start of the next line would join it. So a
text can be cut after a line break, before anything that is neither white space nor a slash, and the tokens of the parts
add up to those of the whole. All lines of a block begin with `<`, `-` or a letter.

The vocabulary is found once per process, in the background and without a network. The order is: tiktoken's, where its
cache holds the file; that of `bpe-openai` (extra `[tokens]`); an estimate. tiktoken downloads what its cache lacks, so
it is used only where the cache has the file.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import sys
import tempfile
from collections.abc import Callable
from functools import cache, lru_cache
from pathlib import Path

import msgspec

from backstory.ledger.concurrency.background_load import BackgroundLoad


@cache
def _ascii_pieces() -> re.Pattern[str]:
    return re.compile(r"[A-Za-z]{1,4}|[0-9]{1,3}|[^A-Za-z0-9\s\x80-\U0010ffff]|\s{2,}|\s(?=[0-9])")


@cache
def _beyond() -> tuple[tuple[re.Pattern[str], float], ...]:
    """Latin letters with accents; Greek, Cyrillic, Arabic; Indic, Thai, Chinese, Japanese and Korean; emoji."""
    return (
        (re.compile("[\x80-\u024f]"), 1.2),
        (re.compile("[\u0250-\u07ff]"), 0.75),
        (re.compile("[\u0800-\uffff]"), 1.5),
        (re.compile("[\U00010000-\U0010ffff]"), 3.0),
    )


class Counter(msgspec.Struct, frozen=True):
    """A token counter.

    `name` is its vocabulary: `tiktoken:o200k_base`, `bpe-openai:o200k_base` or `estimate`. `count` returns the tokens
    of a text; the counts of parts that end in line breaks add up.
    """

    name: str
    count: Callable[[str], int]


def _estimate(text: str) -> int:
    """Estimate without a vocabulary, on the high side; each line is rounded up.

    A word counts one per four letters, a number one per three digits, a mark one, and other scripts by the bytes of
    their characters. docs/explanation/context.md compares the estimate with the vocabularies.
    """
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    return sum(map(_estimated, lines))


def _estimated(line: str) -> int:
    """Estimate a line with its line break; at least 1."""
    tokens = float(len(_ascii_pieces().findall(line)))
    if not line.isascii():
        tokens += sum(weight * len(pattern.findall(line)) for pattern, weight in _beyond())
    return int(tokens) + 1


ESTIMATE = Counter("estimate", _estimate)

_log = logging.getLogger(__name__)

DEFAULT_VOCABULARY = "o200k_base"
"""For models that tiktoken does not know; OpenAI's models use it since 2024."""

_PUBLISHED = "https://openaipublic.blob.core.windows.net/encodings"
_DIGESTS = {
    "cl100k_base": "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
    "o200k_base": "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
}
"""The SHA-256 of the published files; tiktoken refuses any other file."""


@lru_cache(maxsize=16)
def tokens_for(model: str | None, *, exact: bool = True) -> BackgroundLoad[Counter]:
    """Return the process-wide counter for a model; without `exact` it stays an estimate."""
    return BackgroundLoad("a vocabulary", ESTIMATE, lambda: (load_vocabulary(model) if exact else None) or ESTIMATE)


def load_vocabulary(model: str | None) -> Counter | None:
    """Return a counter with a model's vocabulary, or None where none is available; takes up to a second."""
    name = _vocabulary_of(model)
    counter = _from_tiktoken(name) or _packaged(name)
    if counter is None:
        _log.info(
            "tokens are estimated: neither tiktoken's cache nor bpe-openai has %s; install backstory[tokens]", name
        )
    return counter


def _vocabulary_of(model: str | None) -> str:
    if model is None:
        return DEFAULT_VOCABULARY
    try:
        from tiktoken.model import encoding_name_for_model

        # A router puts its name before the model's, as in openai/gpt-4o.
        name = encoding_name_for_model(model.rpartition("/")[2])
    except (ImportError, KeyError):
        return DEFAULT_VOCABULARY
    return name if name in _DIGESTS else DEFAULT_VOCABULARY


def _from_tiktoken(name: str) -> Counter | None:
    if not (_is_loaded(name) or _is_cached(name)):
        return None
    try:
        from tiktoken import get_encoding
    except ImportError:
        return None
    encode = get_encoding(name).encode_ordinary
    return Counter(f"tiktoken:{name}", lambda text: len(encode(text)))


def _is_loaded(name: str) -> bool:
    registry = sys.modules.get("tiktoken.registry")
    return registry is not None and name in registry.ENCODINGS


def _is_cached(name: str) -> bool:
    """Whether tiktoken's cache holds the complete file."""
    folder = os.environ.get("TIKTOKEN_CACHE_DIR", os.environ.get("DATA_GYM_CACHE_DIR"))
    if folder is None:
        folder = str(Path(tempfile.gettempdir()) / "data-gym-cache")
    elif not folder:
        return False
    file = Path(folder) / hashlib.sha1(f"{_PUBLISHED}/{name}.tiktoken".encode()).hexdigest()
    try:
        return hashlib.sha256(file.read_bytes()).hexdigest() == _DIGESTS[name]
    except OSError:
        return False


def _packaged(name: str) -> Counter | None:
    """Load only the compiled part of bpe-openai: importing the package unpacks three vocabularies in Python."""
    from importlib.machinery import PathFinder
    from importlib.util import find_spec, module_from_spec

    package = find_spec("bpe_openai")
    if package is None or package.submodule_search_locations is None:
        return None
    spec = PathFinder.find_spec("_bindings", list(package.submodule_search_locations))
    if spec is None or spec.loader is None:
        return None
    bindings = module_from_spec(spec)
    spec.loader.exec_module(bindings)
    return Counter(f"bpe-openai:{name}", bindings.tokenizer_for_encoding(name).count)
