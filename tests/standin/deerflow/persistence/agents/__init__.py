"""The host's stores of custom agents. Neither tells memory that an agent is deleted; both remove its folder."""

from __future__ import annotations

import shutil
from typing import ClassVar

from deerflow.config.app_config import AppConfig
from deerflow.config.paths import get_paths


class AgentExistsError(Exception):
    """The name is taken."""


class FileAgentStore:
    """An agent is a folder with a `config.yaml`."""

    def exists(self, name: str, *, user_id: str) -> bool:
        return get_paths().user_agent_dir(user_id, name).exists() or get_paths().agent_dir(name).exists()

    def create(self, name: str, *, user_id: str) -> None:
        if self.exists(name, user_id=user_id):
            raise AgentExistsError(name)
        folder = get_paths().user_agent_dir(user_id, name)
        folder.mkdir(parents=True)
        (folder / "config.yaml").write_text(f"name: {name}\n")

    def delete(self, name: str, *, user_id: str) -> str:
        folder = get_paths().user_agent_dir(user_id, name)
        if not folder.exists():
            return "legacy" if get_paths().agent_dir(name).exists() else "missing"
        if not (folder / "config.yaml").is_file():
            return "not-custom-agent"
        shutil.rmtree(folder)
        return "deleted"


class SqlAgentStore:
    """An agent is a row; its folder, if there is one, holds only memory."""

    rows: ClassVar[set[tuple[str, str]]] = set()

    def exists(self, name: str, *, user_id: str) -> bool:
        return (user_id, name.lower()) in self.rows

    def create(self, name: str, *, user_id: str) -> None:
        if self.exists(name, user_id=user_id):
            raise AgentExistsError(name)
        self.rows.add((user_id, name.lower()))

    def delete(self, name: str, *, user_id: str) -> str:
        folder = get_paths().user_agent_dir(user_id, name)
        if self.exists(name, user_id=user_id):
            self.rows.remove((user_id, name.lower()))
            if folder.exists():
                shutil.rmtree(folder)
            return "deleted"
        return "not-custom-agent" if folder.exists() else "missing"


def get_agent_store() -> FileAgentStore | SqlAgentStore:
    return SqlAgentStore() if AppConfig.backend == "db" else FileAgentStore()
