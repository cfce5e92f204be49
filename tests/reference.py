"""Generator of docs/reference: every public name, from signatures and docstrings, and the schema of a memory test.

The pages of the command line and of REST have modules of their own.

`make docs` runs it.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
from collections.abc import Iterator
from importlib import import_module
from itertools import pairwise
from pathlib import Path

import msgspec

import backstory
from backstory.memory_tests.file import schema

PAGE = Path(__file__).parent.parent / "docs/reference/python.md"
SCHEMA = PAGE.with_name("memory-test.schema.json")

INTRODUCTION = """# Reference

`make docs` writes this page from the signatures and docstrings, and a test compares them. Every type on it can be
imported from `backstory`. A method's docstring, as `help(MemoryHandle.record)` shows it, describes each parameter, the
result and the errors.

Every method that does I/O has an async twin with the same parameters and an `a` before its name, for example
`await memory.arecord(…)`. Only `open`, `memory`, `renew`, `by`, `view` and `of` have
none.
"""

OBJECTS = (
    ("Backstory", "A home: `bs = Backstory.open(…)`"),
    ("MemoryHandle", "A memory: `memory = bs.memory(…)`"),
    ("Turns", "The turns of a memory: `memory.turns`"),
)
_SECTION = re.compile(r"    # (.+)\.")


def first_sentence(docstring: str | None) -> str:
    paragraph = " ".join((docstring or "").strip().split("\n\n")[0].split())
    return re.split(r"(?<=\.) (?=[A-Z`])", paragraph)[0]


def signature(node: ast.FunctionDef) -> str:
    """Spell the parameters of a method, without `self` or `cls`, and its result."""
    given = node.args
    positional = [*given.posonlyargs, *given.args]
    defaults = [None] * (len(positional) - len(given.defaults)) + list(given.defaults)
    parts = [_parameter(arg, default) for arg, default in zip(positional, defaults, strict=True)][1:]
    if given.vararg is not None:
        parts.append(f"*{_parameter(given.vararg, None)}")
    elif given.kwonlyargs:
        parts.append("*")
    parts += [_parameter(arg, default) for arg, default in zip(given.kwonlyargs, given.kw_defaults, strict=True)]
    if given.kwarg is not None:
        parts.append(f"**{_parameter(given.kwarg, None)}")
    return f"{node.name}({', '.join(parts)}) -> {_text(node.returns)}"


def _parameter(arg: ast.arg, default: ast.expr | None) -> str:
    return f"{arg.arg}: {_text(arg.annotation)}" + ("" if default is None else f" = {_text(default)}")


def _text(node: ast.expr | None) -> str:
    return "" if node is None else ast.unparse(node).replace("'", '"')


def methods(kind: type) -> Iterator[tuple[str | None, str]]:
    """Yield the section comments of a class and of its parts, each as a title, and a line for each public member."""
    for part in kind.__mro__[:-1]:
        yield from _own_methods(part)


def _own_methods(kind: type) -> Iterator[tuple[str | None, str]]:
    source = inspect.getsource(kind)
    tree = ast.parse(source).body[0]
    assert isinstance(tree, ast.ClassDef)
    titles = {
        number: found[1] for number, line in enumerate(source.splitlines(), 1) if (found := _SECTION.fullmatch(line))
    }
    for node in tree.body:
        while titles and min(titles) < node.lineno:
            yield titles.pop(min(titles)), ""
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            decorators = {_text(one) for one in node.decorator_list}
            stated = f"{node.name}: {_text(node.returns)}" if "property" in decorators else signature(node)
            yield None, f"- `{stated}`  \n  {first_sentence(ast.get_docstring(node))}"


def page() -> str:
    parts = [INTRODUCTION]
    for name, title in OBJECTS:
        kind = getattr(backstory, name)
        parts.append(f"## {title}\n\n{first_sentence(kind.__doc__)}\n")
        heading = ""
        for section, line in methods(kind):
            if section is not None:
                heading = f"### {section}\n"
            else:
                # A section without a public member has no heading.
                parts += [heading, line] if heading else [line]
                heading = ""
        parts.append("")
    types = {name: getattr(backstory, name) for name in sorted(backstory.__all__)}
    errors = [name for name, kind in types.items() if isinstance(kind, type) and issubclass(kind, Exception)]
    listed = {name for name, _ in OBJECTS}
    parts.append("## Types\n\nResults are frozen; their fields are in parentheses.\n")
    parts += [_type(name, kind) for name, kind in types.items() if name not in listed and name not in errors]
    parts.append("\n## Errors\n\nEach line names the class that an error derives from.\n")
    parts += [f"- `{name}({types[name].__base__.__name__})`: {first_sentence(types[name].__doc__)}" for name in errors]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(parts).replace("\n###", "\n\n###").replace("\n## ", "\n\n## ")) + "\n"


def _type(name: str, kind: object) -> str:
    if name == "__version__":
        return f"- `{name}`: The version of the package."
    if not isinstance(kind, type):
        return f"- `{name}`: {_alias(name)}"
    fields = f"({', '.join(kind.__struct_fields__)})" if issubclass(kind, msgspec.Struct) else ""
    return f"- `{name}{fields}`: {first_sentence(kind.__doc__)}"


def _alias(name: str) -> str:
    """Return what an alias stands for, and the sentence below it in the code."""
    tree = ast.parse(inspect.getsource(import_module(backstory._MODULE_OF[name])))
    for statement, after in pairwise([*tree.body, ast.Pass()]):
        target = statement.target if isinstance(statement, ast.AnnAssign) else getattr(statement, "targets", [None])[0]
        if isinstance(target, ast.Name) and target.id == name:
            value = statement.value
            stands_for = value.value if isinstance(value, ast.Constant) else ast.unparse(value)
            said = after.value.value if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) else ""
            return f"`{stands_for}`." + (f" {first_sentence(said)}" if said else "")
    raise LookupError(name)


def main() -> None:
    """Write the pages of docs/reference that come from the code."""
    import reference_commands
    import reference_examples
    import reference_rest

    # First, since the page of REST is made of the document that holds them.
    reference_examples.FILE.write_text(reference_examples.text(), encoding="utf-8")
    PAGE.write_text(page(), encoding="utf-8")
    reference_commands.PAGE.write_text(reference_commands.page(), encoding="utf-8")
    reference_rest.PAGE.write_text(reference_rest.page(), encoding="utf-8")
    SCHEMA.write_text(json.dumps(schema(), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
