"""The windows of these tests: they notice what a page must not do."""

from __future__ import annotations

import asyncio

import pytest
from browsing import OpenOn, Window
from serving import ThreadServer


@pytest.fixture
def unwatched(open_on: OpenOn, told_story: ThreadServer) -> Window:
    window = open_on(told_story)
    window.go("#/memory?user=ada")
    assert window.problems == []
    return window


def test_the_page_opens_without_a_problem_and_asks_this_server_alone(open_on: OpenOn, told_story: ThreadServer) -> None:
    unwatched = open_on(told_story, kept=False)
    unwatched.go("#/memory?user=ada")
    assert unwatched.page.title() == "Memory · ada · Backstory"
    assert {url.startswith(unwatched.url) for url in unwatched.requests} == {True}


NOTICED = {
    "() => console.error('oh')": "console error: oh",
    "() => console.warn('oh')": "console warning: oh",
    "() => { setTimeout(() => { throw new Error('oh') }) }": "page error: Error: oh",
    "() => fetch('v1/nothing')": "404",
    "() => alert(1)": "dialog: '1'",
    "() => fetch('https://elsewhere.example/').catch(() => 0)": "connect-src 'self'",
    "() => document.body.insertAdjacentHTML('beforeend', '<b style=\"color: red\">x</b>')": "style-src 'self'",
    "() => document.body.insertAdjacentHTML('beforeend', '<b onclick=\"alert(1)\">x</b>')": "script-src 'self'",
    "() => { const one = document.createElement('script'); one.text = '1'; document.body.append(one) }": "script-src",
}


def test_a_window_notices_what_a_page_must_not_do(unwatched: Window) -> None:
    for does, problem in NOTICED.items():
        before = len(unwatched.problems)
        unwatched.page.evaluate(does)
        unwatched.settle()
        assert any(problem in one for one in unwatched.problems[before:]), (does, unwatched.problems)
    unwatched.page.evaluate("() => document.querySelectorAll('body > b, body > script').forEach((one) => one.remove())")
    unwatched.allow("")
    assert unwatched.problems == []


def test_an_address_that_shows_a_failure_is_noticed(unwatched: Window) -> None:
    unwatched.go("#/compare?user=ada&what-if=max_facts%3D2")
    (problem,) = unwatched.problems
    assert "failure shown at #/compare" in problem
    assert "max_facts=2" in problem
    unwatched.allow("failure shown")


def test_a_request_to_another_host_is_noticed(open_on: OpenOn, told_story: ThreadServer) -> None:
    window = open_on(told_story, kept=False, bypass_csp=True)
    window.go("#/memory?user=ada")
    window.page.evaluate("() => fetch('https://elsewhere.example/').catch(() => 0)")
    assert any("request elsewhere: https://elsewhere.example/" in one for one in window.problems)
    window.allow("elsewhere.example", "ERR_NAME_NOT_RESOLVED")


def test_a_request_that_fails_is_noticed(unwatched: Window) -> None:
    unwatched.page.route("**/v1/head", lambda route: route.abort("connectionrefused"))
    unwatched.page.evaluate("() => fetch('v1/head').catch(() => 0)")
    assert any("failed request" in one for one in unwatched.problems)
    unwatched.allow("v1/head")


def test_what_is_too_wide_is_noticed(unwatched: Window) -> None:
    assert unwatched.too_wide() == []
    unwatched.page.evaluate("() => { document.querySelector('h1').style.width = '3000px' }")
    assert len(unwatched.too_wide()) >= 2


def test_a_loop_may_run_after_tests_of_the_page() -> None:
    asyncio.run(asyncio.sleep(0))
