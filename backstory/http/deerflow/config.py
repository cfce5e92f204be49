"""Configuration that DeerFlow's clients are shown: no secrets, and addresses and folders only to who sees all users."""

from __future__ import annotations

from backstory.config.secrets import holds_secret
from backstory.config.settings import Settings
from backstory.http.access.callers import Caller
from backstory.http.deerflow.models import MemoryConfig

_MANAGER = "backstory.deerflow:BackstoryMemoryManager"
_MECHANISM = {"enabled", "mode", "injection_enabled", "shutdown_flush_timeout_seconds"}
"""The keys that DeerFlow has beside `backend_config`."""
_OF_THE_SERVER = {
    "anthropic_base_url",
    "embedding_base_url",
    "event_store",
    "patterns_dir",
    "prompts_dir",
    "proxy_upstream",
    "storage_class",
    "storage_path",
    "witness",
}
"""Keys that say where things are."""


def config_shown(settings: Settings, caller: Caller) -> MemoryConfig:
    """Return the configuration in DeerFlow's form.

    Args:
        settings: What is in force.
        caller: Who asks. One whose token covers certain users gets no addresses and folders of the server.
    """
    confined = caller.users is not None
    keys: dict[str, object] = settings.model_dump(
        mode="json", exclude=_MECHANISM | {"model"} | (_OF_THE_SERVER if confined else set()), exclude_none=True
    )
    keys["model"] = settings.model.model_dump(
        exclude={"api_key", "base_url"} if confined else {"api_key"}, exclude_none=True
    )
    return MemoryConfig(
        enabled=settings.enabled,
        mode=settings.mode,
        injection_enabled=settings.injection_enabled,
        shutdown_flush_timeout_seconds=settings.shutdown_flush_timeout_seconds,
        manager_class=_MANAGER,
        backend_config={key: value for key, value in keys.items() if not holds_secret(value)},
    )
