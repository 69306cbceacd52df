"""A long answer that people follow while servers crash: what both deliveries promise.

Two thousand numbers in a minute. Somebody comes and goes at twenty moments, a page is
reloaded, processes are killed: in the end everybody has read the same.
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

from tests.serving import PASSWORD, ServerProcess

from .clients import Program, Screen
from .following import Door, assert_nothing_twice, read, wander, whole
from .stopping import MODEL
from .upstream import Upstream, counted

SECONDS = int(os.environ.get("LONG_STREAM", "60"))
NUMBER = 2000 * SECONDS // 60
TIMES = 20  # that a follower goes away
WISH = f"count to {NUMBER} in {SECONDS} s"
TEXT = counted(NUMBER)
PATIENCE = 240_000  # ms; a loaded machine is slow, not wrong

Report = Callable[[str, object], None]


def after(share: float) -> int:
    """The length of the text when so much of it has been told."""
    return len(counted(int(NUMBER * share)))


@dataclass(frozen=True, slots=True)
class Onlooker:
    """A person with a browser who reloads the page when so much has been told, and sees
    that the answer was interrupted, where it is."""

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
        await page.get_by_role("button", name="Sign in").click()
        await expect(page).to_have_url(f"{self.server.url}/", timeout=PATIENCE)
        return page

    async def _look_on(self, page: Page, report: Report) -> None:
        said = page.locator(".turn").last.locator(".said")
        prefix = TEXT[: after(self.reload_at)]
        await page.goto(f"/chat/{self.conversation}/")
        await expect(said).to_contain_text(prefix, timeout=PATIENCE)
        begun = time.monotonic()
        await page.reload(wait_until="commit")
        await expect(said).to_contain_text(prefix, timeout=PATIENCE)
        report("prefix after a reload, ms", round(1000 * (time.monotonic() - begun)))
        more = TEXT[: after(self.reload_at + 0.1)]
        await expect(said).to_contain_text(more, timeout=PATIENCE)
        resumed = page.locator(".turn").last.locator("[data-slot=resumed]")
        await expect(resumed).to_contain_text("interrupted", timeout=PATIENCE)
        foot = page.locator(".turn").last.locator(".turn-foot")
        await expect(foot).to_be_visible(timeout=PATIENCE)
        await expect(said).to_have_text(TEXT)


@dataclass(frozen=True, slots=True)
class Reading:
    """A program that reads the answer, beside all the others."""

    program: Program
    turn: str
    screen: Screen
    beside: asyncio.TaskGroup  # for what goes on meanwhile

    async def reach(self, share: float) -> None:
        events = self.program.follow(self.turn, self.screen.position)
        await read(events, self.screen, length=after(share))


#: What breaks meanwhile. Returns what the program had read and what the row had kept
#: when the run was lost.
Disturb = Callable[[Reading], Awaitable[tuple[str, str]]]


async def read_by_all(
    server: ServerProcess,
    doors: Sequence[Door],
    port: int,
    chromium: str,
    report: Report,
    disturb: Disturb,
) -> Reading:
    """To its end: by a program, by a person at the page of `server`, and by who goes
    from door to door."""
    program = doors[0].program
    async with Upstream(port), asyncio.TaskGroup() as group:
        conversation = await program.conversation()
        turn = await program.ask(conversation, WISH, model=MODEL)
        onlooker = Onlooker(server, conversation, reload_at=0.2)
        group.create_task(onlooker.look_on(chromium, report))
        wanderer = group.create_task(
            wander(doors, conversation, turn, length=len(TEXT), times=TIMES)
        )
        reading = Reading(program, turn, Screen(), group)
        shown, kept = await disturb(reading)
        await whole(program, turn, reading.screen)
    for screen in (reading.screen, wanderer.result()):
        assert screen.text == TEXT
        assert_nothing_twice(screen)
    assert_little_was_told_again(reading.screen, shown, kept, report)
    return reading


def kept_text(partial: Any) -> str:
    """Of a turn's last snapshot, as its row has it."""
    items = json.loads(partial) if isinstance(partial, str) else partial or []
    messages = [item for item in items if item["type"] == "message"]
    return "".join(part["text"] for item in messages for part in item["content"])


def assert_little_was_told_again(
    screen: Screen, shown: str, kept: str, report: Report
) -> None:
    """What the row kept was told at once and not a second time by the provider; only
    what came after its last snapshot was."""
    types = [event["type"] for event in screen.events]
    assert types.count("parley:step.reset") == 1
    told = screen.events[types.index("parley:step.reset") :]
    first = next(e["delta"] for e in told if e["type"].endswith("output_text.delta"))
    assert first.startswith(kept)
    assert TEXT.startswith(first)
    again = len(shown.split()) - len(first.split())
    report("told again, seconds of text", round(max(0, again) * SECONDS / NUMBER, 2))


async def assert_told_from_rows(reading: Reading) -> None:
    """To who comes the next day the same is told."""
    program, turn, screen = reading.program, reading.turn, reading.screen
    row = await program.turn(turn)
    assert row["status"] == "completed"
    late = await whole(program, turn)
    assert_nothing_twice(late)
    assert late.text == screen.text == TEXT
    said = screen.events[-1]["response"]["output"]
    assert late.events[-1]["response"]["output"] == said
    assert row["response"]["output"] == said
    assert said[0]["content"][0]["text"] == TEXT
