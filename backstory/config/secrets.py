"""Secrets in settings: which values may hold one, and how these are shown."""

from __future__ import annotations

import re

from backstory.witness.destinations import COMMAND

# A password may hold a slash, which a port does not.
_PASSWORD = re.compile(r"(?<=://)(?:[^/\s]*|[^/:\s]*:(?!\d+/)[^@\s]*)@")
_SECRET_PARAMETER = re.compile(
    r"(?<=[?&;#])([^=&;#\s]*(?:pass|pwd|secret|token|key|auth|cred|sig|code|bearer|jwt|%)[^=&;#\s]*)=[^&;#\s]*",
    re.IGNORECASE,
)


def masked(value: object) -> object:
    """Hide API keys, and in a URL the user name, the password and each parameter named like a secret or in escapes."""
    if isinstance(value, dict):
        return {key: "…" if key == "api_key" and inner else masked(inner) for key, inner in value.items()}
    if not isinstance(value, str):
        return value
    return _SECRET_PARAMETER.sub(r"\1=…", _PASSWORD.sub("…@", value))


def holds_secret(value: object) -> bool:
    """Whether a value may hold a secret; any argument of a command may be one."""
    return masked(value) != value or (isinstance(value, str) and value.startswith(COMMAND))
