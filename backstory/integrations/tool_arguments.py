"""Arguments of the tools that change facts, in words for a model: alike over MCP and for agents of LangChain."""

from __future__ import annotations

SURE = "How sure it is, from 0 to 1: high where the user said so, lower where you conclude it."
FROM = "Since when it is true, where that is known: 2026, 2026-03, 2026-03-05 or a moment."
UNTIL = "Until when it is true, to the end of that year, month or day."
EXPIRES = "Until when it is worth remembering, to the end of that year, month or day."
TAGS = "Names to find it by, such as a project; in an update all that it has from now on."
