"""Windows of a real browser, which keep what goes wrong in them: errors, refused policies, failed requests."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeAlias

from fakes import PATIENCE
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Error, Locator, Page, Request

__all__ = ["ADDRESSES", "ARGUMENTS", "ROOT", "WEB", "Kept", "OpenOn", "Window", "open_window", "problems_of"]

ROOT = Path(__file__).resolve().parents[2]
WEB = ROOT / "backstory/page/web"

ARGUMENTS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    # No name but that of this machine is looked up, whatever a page asks for.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)
TOKEN = "backstory-token"  # noqa: S105 the name it is stored under
STREAMS = ("/v1/events",)
ADDRESSES = {
    "memory": "#/memory?user=ada",
    "memory at a moment": "#/memory?user=ada&at=2",
    "search": "#/memory?user=ada&q=peanuts",
    "timeline": "#/timeline?user=ada",
    "timeline at a moment": "#/timeline?user=ada&at=2",
    "graph": "#/graph?user=ada",
    "compare": "#/compare?user=ada&a=2&b=3",
    "what if": "#/compare?user=ada&what-if=max_facts+2",
    "agent": "#/agent?user=ada",
    "agent with a question": "#/agent?user=ada&q=peanuts",
    "operations": "#/operations?user=ada",
    "why a fact": "#/why?user=ada&fact=fact_3_0",
    "why a fact that is gone": "#/why?user=ada&fact=fact_2_0",
    "why a section": "#/why?user=ada&section=user.topOfMind",
    "why an update": "#/why?user=ada&commit=3",
    "why not": "#/why?user=ada&text=Thai",
}
"""What can be looked at in the demo's story."""

_SETTLED = """
() => new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(() => resolve(
  !document.querySelector(".busy, [aria-busy='true']") && document.querySelector("main") !== null
))))
"""
_FAILURES = """
() => [...document.querySelectorAll(".failure")].filter((one) => one.checkVisibility()).map((one) => one.innerText)
"""
_WAKE = """
async ([address, language, token, tokenKey]) => {
  const { refused } = await import("/page/lib/api.js");
  const { setLanguage } = await import("/page/lib/words.js");
  setLanguage(language);
  localStorage.clear();
  if (token !== null) sessionStorage.setItem(tokenKey, token);
  history.replaceState(null, "", address || "#/");
  // Twice, so that no test sees the address of the one before it as the one it came from.
  dispatchEvent(new Event("hashchange"));
  dispatchEvent(new Event("hashchange"));
  refused.set(null);
}
"""
_REST = """
async () => {
  const { made, Problem, refused } = await import("/page/lib/api.js");
  sessionStorage.clear();
  localStorage.clear();
  delete document.documentElement.dataset.theme;
  made.set([]);
  refused.set(new Problem(401, "at rest", ""));
  while (document.querySelector("main.sign-in") === null) await new Promise((resolve) => setTimeout(resolve));
  scrollTo(0, 0);
}
"""
_TOO_WIDE = """
() => {
  const widest = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth <= widest) return [];
  const scrolls = (element) => {
    for (let one = element.parentElement; one && one !== document.body; one = one.parentElement) {
      if (getComputedStyle(one).overflowX !== "visible") return true;
    }
    return false;
  };
  const wide = [...document.querySelectorAll("body *")]
    .filter((one) => one.getBoundingClientRect().right > widest + 0.5 && !scrolls(one))
    .map((one) => `${one.tagName}.${one.getAttribute("class") ?? ""} to ${one.getBoundingClientRect().right}`);
  return [`${document.documentElement.scrollWidth} of ${widest} pixels`, ...wide.slice(0, 8)];
}
"""


class Window:
    """A page of a browser, on the server at `url`.

    `problems` is everything that a page must not do, and every address that shows a failure; `allow` takes out what a
    test brings about.

    Args:
        page: The page.
        url: Address of the server, without a slash at its end.
        wake: Shows the first address, where the page is loaded already.
        close: What is to be done at the end.
    """

    def __init__(
        self, page: Page, url: str, *, wake: Callable[[str], None] | None = None, close: Callable[[], None]
    ) -> None:
        self.page = page
        self.url = url
        self.requests: list[str] = []
        self._wake = wake
        self._close = close
        self._problems: list[str] = []
        self._allowed: list[re.Pattern[str]] = []
        self._pending: set[Request] = set()
        self.closed = False
        self._heard = {
            "console": self._on_console,
            "pageerror": self._on_error,
            "request": self._on_request,
            "requestfinished": self._on_finished,
            "requestfailed": self._on_failed,
            "dialog": self._on_dialog,
        }
        for event, hear in self._heard.items():
            page.on(event, hear)  # type: ignore[call-overload]

    def _on_console(self, message: ConsoleMessage) -> None:
        if message.type in {"error", "warning", "assert"}:
            self._problems.append(f"console {message.type}: {message.text} ({message.location.get('url', '')})")

    def _on_error(self, error: Error) -> None:
        self._problems.append(f"page error: {error.stack or error.message}")

    def _on_request(self, request: Request) -> None:
        self._pending.add(request)
        self.requests.append(request.url)
        if not request.url.startswith((f"{self.url}/", "data:", "blob:")):
            self._problems.append(f"request elsewhere: {request.url}")

    def _on_finished(self, request: Request) -> None:
        self._pending.discard(request)

    def _on_failed(self, request: Request) -> None:
        self._pending.discard(request)
        # What a view no longer needs is aborted.
        if request.failure != "net::ERR_ABORTED":
            self._problems.append(f"failed request: {request.url}: {request.failure}")

    def _on_dialog(self, dialog: object) -> None:
        self._problems.append(f"dialog: {getattr(dialog, 'message', '')!r}")
        dialog.dismiss()  # type: ignore[attr-defined]

    def allow(self, *patterns: str) -> None:
        """Take problems that match for expected, also those that are still to come."""
        self._allowed += map(re.compile, patterns)

    @property
    def problems(self) -> list[str]:
        """What went wrong and was not allowed."""
        return [one for one in self._problems if not any(pattern.search(one) for pattern in self._allowed)]

    def go(self, address: str = "") -> Page:
        """Open an address of the page, such as `#/memory?user=ada`, and wait until it is settled."""
        if self._wake is not None:
            self._wake(address)
            self._wake = None
        elif address.startswith("#") and self.page.url.startswith(f"{self.url}/"):
            self.page.evaluate("(hash) => { location.hash = hash }", address)
        else:
            self.page.goto(f"{self.url}/{address}")
        self.settle()
        self._problems += [f"failure shown at {address}: {text}" for text in self.page.evaluate(_FAILURES)]
        return self.page

    def close(self) -> None:
        """Hear nothing more of the page, and let go of it."""
        if self.closed:
            return
        self.closed = True
        for event, hear in self._heard.items():
            self.page.remove_listener(event, hear)
        self._close()

    def settle(self) -> None:
        """Wait until nothing is loading any more and what was loaded is painted."""
        until = time.monotonic() + PATIENCE
        calm = 0
        while calm < 2:
            done = self.page.evaluate(_SETTLED)
            loading = [one.url for one in self._pending if not one.url.startswith(tuple(map(self._path, STREAMS)))]
            calm = calm + 1 if done and not loading else 0
            if time.monotonic() > until:
                raise AssertionError(f"the page is not settled: {loading or 'it says that it is busy'}")

    def _path(self, path: str) -> str:
        return f"{self.url}{path}"

    def say(self, file: str, key: str, **values: object) -> str:
        """Return a word in the language that is shown, such as `say("components/undo", "undo")`."""
        return str(
            self.page.evaluate(
                """async ([file, key, values]) => {
                  const { wordsOf } = await import("/page/lib/words.js");
                  return wordsOf((await import(`/page/${file}.words.js`)).words)(key, values);
                }""",
                [file, key, values],
            )
        )

    def tab_to(self, target: Locator, most: int = 80) -> None:
        """Press the tabulator until an element has the focus, which must be seen."""
        for _ in range(most):
            self.page.keyboard.press("Tab")
            if target.evaluate("(element) => element === document.activeElement"):
                outline = target.evaluate("(element) => getComputedStyle(element).outlineStyle")
                assert outline not in {"", "none"}, "the focus is not seen"
                return
        raise AssertionError(f"the tabulator does not reach {target}")

    def too_wide(self) -> list[str]:
        """Return what makes the page scroll sideways."""
        return list(self.page.evaluate(_TOO_WIDE))


def open_window(
    browser: Browser,
    url: str,
    *,
    size: tuple[int, int] = (1280, 800),
    dark: bool = False,
    language: str = "en-GB",
    token: str | None = None,
    bypass_csp: bool = False,
    beside: Window | None = None,
) -> Window:
    """Open an empty window.

    Args:
        browser: What to open it in.
        url: Address of the server, without a slash at its end.
        size: Width and height in pixels.
        dark: Prefer the dark theme.
        language: Language that the browser asks for.
        token: Token that is already signed in with.
        bypass_csp: Let scripts be put into the page.
        beside: A window of the same profile, as a second tab is.
    """
    if beside is not None:
        tab = beside.page.context.new_page()
        return Window(tab, url, close=tab.close)
    context: BrowserContext = browser.new_context(
        viewport={"width": size[0], "height": size[1]},
        color_scheme="dark" if dark else "light",
        locale=language,
        timezone_id="Europe/Oslo",
        reduced_motion="reduce",
        bypass_csp=bypass_csp,
    )
    context.set_default_timeout(1000 * PATIENCE / 2)
    if token is not None:
        context.add_init_script(f"sessionStorage.setItem({TOKEN!r}, {token!r})")
    return Window(context.new_page(), url, close=context.close)


class Kept:
    """A page that stays loaded from one test to the next.

    Between tests it rests as the page does that asks for a token: no view is there, nothing is asked for, and all is
    made anew when the next test wakes it. What a test does to the document or to the browser's own functions would
    stay: such a test opens a window that is not kept.
    """

    def __init__(self, browser: Browser, url: str) -> None:
        self._browser = browser
        self._url = url
        self._page: Page | None = None
        self._free = True

    def is_free(self) -> bool:
        """Whether no window has the page now."""
        return self._free

    def open(
        self,
        *,
        size: tuple[int, int] = (1280, 800),
        dark: bool = False,
        language: str = "en-GB",
        token: str | None = None,
    ) -> Window:
        """Return a window with the page, as `open_window` does; its language is chosen in the page."""
        page = self._page or self._load()
        self._page, self._free = page, False

        def wake(address: str) -> None:
            page.evaluate(_WAKE, [address, language.partition("-")[0], token, TOKEN])

        if page.viewport_size != {"width": size[0], "height": size[1]}:
            page.set_viewport_size({"width": size[0], "height": size[1]})
        page.emulate_media(color_scheme="dark" if dark else "light", reduced_motion="reduce")
        return Window(page, self._url, wake=wake, close=self._rest)

    def _load(self) -> Page:
        page = open_window(self._browser, self._url).page
        # Without a memory that is named it asks for nothing but whose there are.
        page.goto(f"{self._url}/")
        page.evaluate(_REST)
        return page

    def _rest(self) -> None:
        self._free = True
        page = self._page
        if page is None:
            return
        try:
            page.unroute_all()
            page.mouse.move(0, 0)
            page.evaluate(_REST)
        except Error:
            # It was closed, or shows something else.
            self._page = None
            page.context.close()


def problems_of(windows: Iterable[Window]) -> list[str]:
    """Return what went wrong in any of them."""
    return [problem for window in windows for problem in window.problems]


OpenOn: TypeAlias = Callable[..., Window]
"""Opens a window: `open_on(server, **options)`, with the options of `open_window`; `kept=False` loads a page anew."""
