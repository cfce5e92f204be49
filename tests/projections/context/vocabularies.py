"""Vocabularies as tiktoken keeps them, from the package that carries them."""

from __future__ import annotations

import gzip
import hashlib
from importlib.util import find_spec
from pathlib import Path

from backstory.projections.context.counting import _PUBLISHED


def unpack(name: str, folder: Path) -> Path:
    """Put a vocabulary where tiktoken looks for what it has fetched."""
    spec = find_spec("bpe_openai")
    assert spec is not None
    assert spec.submodule_search_locations
    packed = Path(spec.submodule_search_locations[0]) / "data" / f"{name}.tiktoken.gz"
    file = folder / hashlib.sha1(f"{_PUBLISHED}/{name}.tiktoken".encode()).hexdigest()
    file.write_bytes(gzip.decompress(packed.read_bytes()))
    return file
