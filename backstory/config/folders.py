"""Folders of prompts and patterns that the settings name, and what is read from them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from backstory.config.settings import Settings
    from backstory.ledger.extraction.signals import Signals
    from backstory.ledger.text.scaffolding import Scaffolding


def folder_of(stated: str | None) -> Path | None:
    """Return the path of a folder as a setting states it; None where it states none."""
    return Path(stated) if stated else None


def signals_of(settings: Settings) -> Signals:
    """Load the signal patterns, the packaged ones or those of `patterns_dir`.

    Raises:
        ConfigError: The folder is missing, or a file in it cannot be used.
    """
    from backstory.ledger.extraction.signals import load_signals

    return load_signals(folder_of(settings.patterns_dir))


def scaffolding_of(settings: Settings) -> Scaffolding:
    """Load the wrappers of what no person said, the packaged ones and those of `patterns_dir`.

    Raises:
        ConfigError: The file in the folder cannot be used.
    """
    from backstory.ledger.text.scaffolding import load_scaffolding

    return load_scaffolding(folder_of(settings.patterns_dir))


def check_folders(settings: Settings) -> None:
    """Read the files that only an update reads otherwise, so that an error is shown now and not by a worker later.

    Raises:
        ConfigError: A folder of prompts or patterns is missing, or a file in it cannot be used.
    """
    from backstory.ledger.extraction.deerflow_files import agents_with_templates
    from backstory.ledger.extraction.templates import load_templates

    if settings.prompts_dir:
        folder = Path(settings.prompts_dir)
        for agent in (None, *agents_with_templates(folder)):
            load_templates(folder, agent)
    if settings.patterns_dir:
        signals_of(settings)
        scaffolding_of(settings)
