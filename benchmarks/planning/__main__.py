"""Print the plan: `python -m benchmarks.planning --users 10000000`. Every assumption is an option."""

from __future__ import annotations

import argparse
from pathlib import Path

from pydantic import ValidationError

from benchmarks.planning.assumptions import Assumptions
from benchmarks.planning.plan import plan

__all__ = ["BEGIN", "END", "PAGE", "with_plan"]

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "scale.md"
BEGIN, END = "<!-- what `python -m benchmarks.planning` prints -->", "<!-- end -->"


def with_plan(page: str, tables: str) -> str:
    """Return a page with these tables in the place of its own."""
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n\n{tables}\n\n{END}{after}"


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.planning",
        description=__doc__,
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    for name, field in Assumptions.model_fields.items():
        parser.add_argument(f"--{name.replace('_', '-')}", default=field.default, help=field.description)
    parser.add_argument("--write", action="store_true", help="write the plan into docs/explanation/scale.md")
    options = vars(parser.parse_args())
    write = options.pop("write")
    try:
        tables = plan(Assumptions.model_validate(options))
    except ValidationError as error:
        parser.error(str(error))
    print(tables)
    if write:
        PAGE.write_text(with_plan(PAGE.read_text("utf-8"), tables), "utf-8")


if __name__ == "__main__":
    main()
