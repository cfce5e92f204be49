"""The words that differ: marked in both texts of a section, and in none where hardly a word is common."""

from __future__ import annotations

import pytest
from browsing import OpenOn, Window
from playwright.sync_api import expect
from serving import ThreadServer

MARKED = """async (texts) => (await import("/page/lib/differing.js")).marked(...texts)
  .map((parts) => parts.map(({ text, differs }) => (differs ? `[${text.trimEnd()}]` : text.trimEnd())).join(" "))"""


@pytest.mark.parametrize(
    ("before", "after", "marked"),
    [
        ("Bakes bread in Oslo.", "Bakes bread in Oslo.", ["Bakes bread in Oslo.", "Bakes bread in Oslo."]),
        (
            "She bakes rye bread in Oslo and sings.",
            "She bakes bread in Bergen and often sings.",
            ["She bakes [rye] bread in [Oslo] and sings.", "She bakes bread in [Bergen] and [often] sings."],
        ),
        ("她在奥斯陆烤面包", "她在卑尔根烤面包", ["她在 [奥斯陆] 烤面包", "她在 [卑尔根] 烤面包"]),
        ("Bakes bread daily", "Sings with a choir", ["Bakes bread daily", "Sings with a choir"]),
        ("", "Sings", ["", "[Sings]"]),
        ("one  two\nthree", "one two three", ["one  two\nthree", "one two three"]),
    ],
)
def test_the_words_that_differ_are_marked(told: Window, before: str, after: str, marked: list[str]) -> None:
    assert told.page.evaluate(MARKED, [before, after]) == marked


def test_the_parts_add_up_to_the_texts_however_long_they_are(told: Window) -> None:
    texts = [" ".join(f"{word}{n}" for n in range(2000)) for word in ("a", "b")]
    long = [f"{text} the common end" for text in texts]
    js = """async (texts) => (await import("/page/lib/differing.js")).marked(...texts)
      .map((parts) => parts.map(({ text }) => text).join(""))"""
    assert told.page.evaluate(js, long) == long


def test_a_section_marks_what_was_rewritten(window: Window, story: ThreadServer) -> None:
    for summary in ("Runs a small bakery in Oslo.", "Runs a large bakery in Oslo."):
        section = {"summary": summary, "updatedAt": "2026-03-07T00:00:00Z"}
        story.post(
            "/v1/import?user=ada", {"document": {"user": {"workContext": section}}, "replace": True}
        ).raise_for_status()
    page = window.go("#/timeline?user=ada")
    change = page.locator(".section-change", has_text="Work")
    expect(change.locator("mark")).to_have_text(["small ", "large "])
    page = window.go("#/why?user=ada&section=user.workContext")
    expect(page.locator(".event").first.locator("mark")).to_have_text("large ")


@pytest.fixture
def told(open_on: OpenOn, told_story: ThreadServer) -> Window:
    """A window on a story that no test changes."""
    window = open_on(told_story)
    window.go("#/memory?user=ada")
    return window
