"""A server with the rows of `rows`, and browsers of its users, made once a module."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, BrowserContext, Page

from tests.integration.accessibility.texts import GUEST, NAME, NEWCOMER, STARTER
from tests.integration.browser.test_chat import session
from tests.serving import PATIENCE, ServerProcess

DESKTOP = {"viewport": {"width": 1440, "height": 900}}
PHONE = {
    "viewport": {"width": 390, "height": 844},
    "has_touch": True,
    "is_mobile": True,
}
#: What a window of 1440 pixels has left at 200 %.
ZOOMED = {"viewport": {"width": 720, "height": 450}, "device_scale_factor": 2}
STORE = "from tests.integration.accessibility.rows import store_rows; store_rows()"
#: Of its server: links may be public, and no page is hidden behind a question.
ENVIRONMENT = {"SHARE_LINKS": "public", "READING_NEEDS_REASON": "false"}
#: Pages that are looked at without having signed in.
OUTSIDE = ("sign in", "shared page", "closed link", "admin sign in")


#: Who looks at pages that only they are shown.
VIEWERS = {
    "new terms": NEWCOMER,
    "required password": STARTER,
    "confirmation by provider": GUEST,
}


@dataclass
class Site:
    browser: Browser
    server: ServerProcess
    paths: dict[str, str]  # by kind of page

    @contextmanager
    def open(self, name: str, **options: Any) -> Iterator[Page]:
        """The page of this kind, as its user sees it."""
        with self.context(user_of(name), **options) as context:
            page = context.new_page()
            show(page, name, self.paths[name])
            yield page

    @contextmanager
    def context(self, user: str, **options: Any) -> Iterator[BrowserContext]:
        state = session(self.browser, self.server, user) if user else None
        make = partial(self.browser.new_context, base_url=self.server.url)
        context = make(storage_state=state, service_workers="block", **options)
        yield context
        context.close()


def start_site(browser: Browser, migrated: Path, folder: Path) -> Site:
    shutil.copytree(migrated, folder / "data")
    server = ServerProcess(folder / "data", ENVIRONMENT).start()
    stored = server.manage("shell", "-v0", "-c", STORE)
    return Site(browser, server, json.loads(stored.splitlines()[-1]))


def user_of(name: str) -> str:
    """Who looks at this kind of page; empty for nobody in particular."""
    if name in OUTSIDE:
        return ""
    usual = "admin" if name.startswith("admin") else NAME
    return VIEWERS.get(name, usual)


def show(page: Page, name: str, path: str) -> None:
    """Go there and wait until its scripts are done."""
    if name == "offline":  # it would leave as soon as the server answers
        page.route("**/healthz", lambda route: route.abort())
    page.goto(path)
    if name == "formula and table":
        page.wait_for_selector(".katex", state="attached", timeout=1000 * PATIENCE)
    if name == "shared page":  # and not the page of a link that is closed
        page.wait_for_selector(".turn", timeout=1000 * PATIENCE)
    if name == "diagram":
        page.wait_for_selector(
            ".diagram img", state="attached", timeout=1000 * PATIENCE
        )
    page.evaluate("document.fonts.ready")
