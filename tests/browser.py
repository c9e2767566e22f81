"""Chromium for tests: how it starts, and a page that records its messages and refuses requests to elsewhere."""

import ctypes
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import pytest
from playwright.sync_api import Browser, Page, Route, sync_playwright

Test = TypeVar("Test", bound=Callable[..., None])
CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
_FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def _has_library(name: str) -> bool:
    try:
        ctypes.CDLL(name)
    except OSError:
        return False
    return True


BROWSER_MARKS = (
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt-get install chromium"),
    pytest.mark.skipif(
        sys.platform == "linux" and not _has_library("libatomic.so.1"),
        reason="Playwright needs libatomic: apt-get install libatomic1",
    ),
)


def needs_browser(test: Test) -> Test:
    """Mark one test of a module whose other tests need no browser."""
    for mark in BROWSER_MARKS:
        test = mark(test)
    return test


@contextmanager
def launch_chromium() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=list(_FLAGS))
        yield chromium
        chromium.close()


class Visit:
    """An open page, with its console messages and the requests to other addresses, which are aborted."""

    def __init__(self, page: Page, *allowed: str) -> None:
        self.page = page
        self.messages: list[str] = []
        self.requests: list[str] = []
        self._allowed = allowed
        page.on("console", lambda message: self.messages.append(message.text))
        page.on("pageerror", lambda error: self.messages.append(str(error)))
        page.route("**/*", self._handle_request)

    def _handle_request(self, route: Route) -> None:
        if route.request.url.startswith(self._allowed):
            route.continue_()
        else:
            self.requests.append(route.request.url)
            route.abort()

    def wait_for_charts(self) -> None:
        self.wait_until(
            "[...document.querySelectorAll('.chart')].every((c) => c.dataset.drawn === 'true')"
        )

    def wait_until(self, condition: str) -> None:
        """Poll from outside, because Playwright waits with an eval that the page's security policy forbids."""
        deadline = time.monotonic() + 60
        while not self.page.evaluate(condition):
            assert time.monotonic() < deadline, f"never came true: {condition}"
            self.page.wait_for_timeout(50)

    def scrolls_sideways(self) -> bool:
        return bool(self.page.evaluate("document.documentElement.scrollWidth > window.innerWidth"))
