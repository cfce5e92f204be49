"""The prose: comments, docstrings and pages use none of the words that make a sentence a riddle."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
BANNED = re.compile(r"\b(whoever|nobody|somebody|so many|told|tells|said of)\b", re.IGNORECASE)
LITERAL = re.compile(r"```.*?```|`[^`]*`|\"[^\"\n]*\"", re.DOTALL)
MEANT = {
    "backstory/langchain/tools.py": "what the user told you",  # instructions to a model
    "backstory/mcp/tools/reading.py": "what the user told you",
    "docs/how-to/mcp.md": "told to show you the changes",
    "README.md": "tells this story",
    "ledger/threads/delivery/told.py": "told:",  # an argument
    "backstory/services/services.py": "tells:",  # a field
    "ledger/learning/updater.py": "tells:",  # a field
    "docs/reference/python.md": "scopes, tells, hidden",  # a field
    "docs/explanation/graph.md": "told of",  # the name of an edge
}


def prose(path: Path) -> Iterator[tuple[int, str]]:
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        yield 1, LITERAL.sub("", text)
        return
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], LITERAL.sub("", token.string)
    for node in ast.walk(ast.parse(text)):
        for statement in getattr(node, "body", []) if not isinstance(node, ast.Lambda | ast.IfExp) else []:
            if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                # With the docstrings of attributes.
                yield statement.lineno, LITERAL.sub("", str(statement.value.value))


FILES = sorted(
    path
    for folder, pattern in (
        ("ledger", "*.py"),
        ("projections", "*.py"),
        ("backstory", "*.py"),
        ("docs", "*.md"),
        (".", "README.md"),
        (".", "CONTRIBUTING.md"),
    )
    for path in ((ROOT / folder).rglob(pattern) if folder != "." else [ROOT / pattern])
    if not {"ledger", "projections"} & set(path.relative_to(ROOT).parts[1:2]) or folder == "docs"
)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_no_word_makes_a_riddle(path: Path) -> None:
    if not BANNED.search(path.read_text(encoding="utf-8")):
        return  # To take most files apart would take seconds.
    meant = MEANT.get(path.relative_to(ROOT).as_posix(), "\0")
    found = [
        f"line {line}: {match[0]}" for line, text in prose(path) for match in BANNED.finditer(text.replace(meant, ""))
    ]
    assert found == []


ERRORS = re.compile(r"^( *)Raises:\n((?:\1    .*\n?)+)", re.MULTILINE)
ERROR = re.compile(r"[A-Za-z_][\w.]*(?:(?:, | or )[A-Za-z_][\w.]*)*: [^a-z].*\.", re.DOTALL)


def unlike(path: Path) -> Iterator[str]:
    """The errors in a file's docstrings that are not a name, or several that share it, and a sentence about when."""
    text = path.read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(text)) if "Raises:" in text else ():
        documented = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module)
        for indent, section in ERRORS.findall(ast.get_docstring(node) or "") if documented else ():
            for item in re.split(rf"\n(?={indent}    \S)", section.rstrip("\n")):
                if not ERROR.fullmatch(item.strip()):
                    yield f"{path.relative_to(ROOT)}: {item.strip()}"


def test_errors_are_named_in_one_style() -> None:
    assert [item for path in FILES if path.suffix == ".py" for item in unlike(path)] == []
