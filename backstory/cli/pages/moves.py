"""Pages about the move of a home."""

from __future__ import annotations

from backstory.cli.pages.labels import counted
from backstory.cli.pages.page import Page
from backstory.lifecycle.copying import CancelledCopy, CopiedHome


def copied_lines(page: Page, done: CopiedHome) -> None:
    """Print what a copy has moved."""
    what = f"{counted(done.commits, 'commit')} in {counted(done.streams, 'stream')}"
    if done.new:
        page.line((f"Moved {what} from {done.source} to {done.target}.", "bold"))
    else:
        page.line((f"All {what} of {done.source} are in {done.target} already.", "bold"))
    page.line(f"{done.source} takes no changes any more.")
    if done.files:
        page.line(f"Copied beside the logs: {', '.join(done.files)}.")
    if done.kept:
        page.line(f"Not copied, since the target has another one: {', '.join(done.kept)}.")


def cancelled_lines(page: Page, done: CancelledCopy) -> None:
    """Print what has become of a copy that was given up."""
    page.line((f"{done.source} takes changes again.", "bold"))
    page.line(f"{done.target} stays an incomplete copy. Delete it, or run `backstory copy` again to complete it.")
