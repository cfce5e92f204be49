"""Where the host keeps what belongs to users and agents."""

from __future__ import annotations

import os
from pathlib import Path


class Paths:
    """Its folders: a user's agents, and those of the older layout, which all users share."""

    @property
    def base_dir(self) -> Path:
        return Path(os.environ.get("DEER_FLOW_HOME") or Path.cwd() / ".deer-flow").resolve()

    @property
    def agents_dir(self) -> Path:
        return self.base_dir / "agents"

    def agent_dir(self, name: str) -> Path:
        return self.agents_dir / name.lower()

    def user_dir(self, user_id: str) -> Path:
        return self.base_dir / "users" / user_id

    def user_agent_dir(self, user_id: str, agent_name: str) -> Path:
        return self.user_dir(user_id) / "agents" / agent_name.lower()


def get_paths() -> Paths:
    return Paths()
