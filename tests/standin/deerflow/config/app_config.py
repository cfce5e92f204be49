"""The host's `config.yaml`, as far as it says where agents are stored; tests set it."""

from __future__ import annotations

from types import SimpleNamespace


class AppConfig:
    """What `config.yaml` says; without one, asking for it fails."""

    backend: str | None = None


def get_app_config() -> SimpleNamespace:
    if AppConfig.backend is None:
        raise FileNotFoundError("no config.yaml")
    return SimpleNamespace(agent_storage=SimpleNamespace(backend=AppConfig.backend))
