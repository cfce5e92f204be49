"""Tools of memory as clients list them: flat schemas, and an error for an argument that a tool does not have."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from functools import cached_property
from typing import Any

from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.tools import Tool

__all__ = ["MemoryTool"]

_LIKENESS = 0.6


class MemoryTool(Tool):
    """A tool whose schemas have no `$ref`, no null and no unions: several clients refuse a tool for one of these."""

    def model_post_init(self, context: Any, /) -> None:
        """Flatten the schema of the arguments."""
        super().model_post_init(context)
        self.parameters = {**_flat(self.parameters, {}), "additionalProperties": False}

    @cached_property
    def output_schema(self) -> dict[str, Any] | None:
        """The schema of the result. What has no value is left out of results, so nothing in it may be null."""
        schema = self.fn_metadata.output_schema
        return None if schema is None else _flat(schema, schema.get("$defs", {}))

    async def run(self, arguments: dict[str, Any], *more: Any, **options: Any) -> Any:
        """Run the tool.

        Raises:
            ToolError: It has no such argument, or it failed.
        """
        known = self.parameters["properties"]
        for name in arguments:
            if name not in known:
                near = get_close_matches(name, known, 1, _LIKENESS)
                meant = f"; did you mean {near[0]}?" if near else f": it takes {', '.join(known)}"
                raise ToolError(f"{self.name} has no argument {name[:80]}{meant}")
        return await super().run(arguments, *more, **options)


def _flat(schema: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema with its references in place, and one type where there was a choice."""
    choices = [one for one in schema.get("anyOf", ()) if one.get("type") != "null"]
    # A commit is a number or a text such as HEAD~1, and every number can be written as a text.
    chosen = next((one for one in choices if one.get("type") == "string"), choices[0] if choices else {})
    named = known[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else {}
    own = {key: value for key, value in schema.items() if key not in {"anyOf", "$ref", "$defs", "title"}}
    if own.get("default", ...) is None:
        del own["default"]
    merged = {**_flat(chosen, known), **_flat(named, known), **own} if chosen or named else own
    if "properties" in merged:
        merged["properties"] = {name: _flat(one, known) for name, one in merged["properties"].items()}
    if "items" in merged:
        merged["items"] = _flat(merged["items"], known)
    return merged
