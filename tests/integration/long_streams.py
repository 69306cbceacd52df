"""A long answer that people follow while servers crash, in both deliveries.

A thousand numbers in half a minute, or in LONG_STREAM seconds. A subscriber reconnects
twenty times, a page is reloaded, processes are killed: in the end all have read the
same.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from playwright.async_api import Browser, Page, async_playwright, expect

from tests.integration.clients import Program, Screen
from tests.integration.following import (
    EntryPoint,
    assert_nothing_twice,
    read,
    wander,
    whole,
)
from tests.integration.stopping import MODEL
from tests.integration.upstream import Upstream, counted
from tests.serving import PASSWORD, ServerProcess

SECONDS = int(os.environ.get("LONG_STREAM", "30"))
NUMBER = 2000 * SECONDS // 60
TIMES = 20  # that a subscriber disconnects
WISH = f"count to {NUMBER} in {SECONDS} s"
TEXT = counted(NUMBER)
PATIENCE = 240_000  # ms; a loaded machine is slow, not wrong

Report = Callable[[str, object], None]


def after(share: float) -> int:
    """The length of the text when so much of it has been sent."""
    return len(counted(int(NUMBER * share)))


@dataclass(frozen=True, slots=True)
class Onlooker:
    """A person with a browser who reloads the page when so much has been sent, and sees
    where the answer was interrupted."""

    server: ServerProcess
    conversation: str
    reload_at: float

    async def look_on(self, chromium: str, report: Report) -> None:
        async with async_playwright() as playwright:
            browser = await playwright.chromium.launch(
                executable_path=chromium, args=["--no-sandbox", "--disable-gpu"]
            )
            try:
                await self._look_on(await self._signed_in(browser), report)
            finally:
                await browser.close()

    async def _signed_in(self, browser: Browser) -> Page:
        context = await browser.new_context(base_url=self.server.url)
        page = await context.new_page()
        await page.goto("/login/")
        await page.get_by_label("Username").fill("admin")
        await page.get_by_label("Password").fill(PASSWORD)
        await page.get_by_role("button", name="Sign in", exact=True).click()
        await expect(page).to_have_url(f"{self.server.url}/", timeout=PATIENCE)
        return page

    async def _look_on(self, page: Page, report: Report) -> None:
        answer = page.locator(".turn").last.locator(".said")
        prefix = TEXT[: after(self.reload_at)]
        await page.goto(f"/chat/{self.conversation}/")
        await expect(answer).to_contain_text(prefix, timeout=PATIENCE)
        begun = time.monotonic()
        await page.reload(wait_until="commit")
        await expect(answer).to_contain_text(prefix, timeout=PATIENCE)
        report("prefix after a reload, ms", round(1000 * (time.monotonic() - begun)))
        more = TEXT[: after(self.reload_at + 0.1)]
        await expect(answer).to_contain_text(more, timeout=PATIENCE)
        resumed = page.locator(".turn").last.locator("[data-slot=resumed]")
        await expect(resumed).to_contain_text("interrupted", timeout=PATIENCE)
        foot = page.locator(".turn").last.locator(".turn-foot")
        await expect(foot).to_be_visible(timeout=PATIENCE)
        await expect(answer).to_have_text(TEXT)


@dataclass(frozen=True, slots=True)
class Reading:
    """A program that reads the answer, beside all the others."""

    program: Program
    turn: str
    screen: Screen
    beside: asyncio.TaskGroup  # for the disturbance meanwhile

    async def reach(self, share: float) -> None:
        events = self.program.follow(self.turn, self.screen.position)
        await read(events, self.screen, length=after(share))


#: The disturbance. Returns what the program had read and what the row had stored
#: when the run was lost.
Disturb = Callable[[Reading], Awaitable[tuple[str, str]]]


async def read_by_all(
    server: ServerProcess,
    doors: Sequence[EntryPoint],
    port: int,
    chromium: str,
    report: Report,
    disturb: Disturb,
) -> Reading:
    """To its end: by a program, by a person at the page of `server`, and by a
    subscriber that changes processes."""
    program = doors[0].program
    async with Upstream(port), asyncio.TaskGroup() as group:
        conversation = await program.conversation()
        turn = await program.create_turn(conversation, WISH, model=MODEL)
        onlooker = Onlooker(server, conversation, reload_at=0.2)
        group.create_task(onlooker.look_on(chromium, report))
        wanderer = group.create_task(
            wander(doors, conversation, turn, length=len(TEXT), times=TIMES)
        )
        reading = Reading(program, turn, Screen(), group)
        shown, stored = await disturb(reading)
        await whole(program, turn, reading.screen)
    for screen in (reading.screen, wanderer.result()):
        assert screen.text == TEXT
        assert_nothing_twice(screen)
    assert_little_was_repeated(reading.screen, shown, stored, report)
    return reading


def snapshot_text(partial: Any) -> str:
    """Of a turn's last snapshot, as its row has it."""
    items = json.loads(partial) if isinstance(partial, str) else partial or []
    messages = [item for item in items if item["type"] == "message"]
    return "".join(part["text"] for item in messages for part in item["content"])


def assert_little_was_repeated(
    screen: Screen, shown: str, stored: str, report: Report
) -> None:
    """The text of the row's last snapshot was sent at once and was not requested again;
    only the text after it was."""
    types = [event["type"] for event in screen.events]
    assert types.count("parley:step.reset") == 1
    after_reset = screen.events[types.index("parley:step.reset") :]
    first = next(
        e["delta"] for e in after_reset if e["type"].endswith("output_text.delta")
    )
    assert first.startswith(stored)
    assert TEXT.startswith(first)
    again = len(shown.split()) - len(first.split())
    report("told again, seconds of text", round(max(0, again) * SECONDS / NUMBER, 2))


async def assert_replayed_from_rows(reading: Reading) -> None:
    """A subscriber on the next day receives the same."""
    program, turn, screen = reading.program, reading.turn, reading.screen
    row = await program.turn(turn)
    assert row["status"] == "completed"
    late = await whole(program, turn)
    assert_nothing_twice(late)
    assert late.text == screen.text == TEXT
    output = screen.events[-1]["response"]["output"]
    assert late.events[-1]["response"]["output"] == output
    assert row["response"]["output"] == output
    assert output[0]["content"][0]["text"] == TEXT
