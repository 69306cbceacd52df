"""Long conversations in a real browser: how long they take to open, and what stalls.

Headless Chromium opens each conversation, scrolls through all that the page shows, and
reads answers while they stream. A *task* is what the page's main thread does without a
pause. Tasks of 50 ms and more, by the clock, are those that PerformanceObserver reports
as long; as other programs delay them too, the longest task's CPU is read from a trace.

`PAGES=block` measures only conversations with that word; `TRACES=folder` keeps the
traces, which Chromium's developer tools show.

Needs Chromium (`CHROMIUM`, else `chromium` of the path).
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from statistics import median
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.test import Client
from playwright.sync_api import Browser, Page, sync_playwright

from benchmarks.pages.provider import RATE, STREAMED, serve_lines
from benchmarks.pages.texts import STREAMS, block, blocks, formulas, prose
from benchmarks.table import show
from conversations.models import Conversation, Item, Turn
from llm.models import LanguageModel, Provider
from llm.wire.items import message
from tests.serving import ServerProcess

OPENED = 3  # times that each page is opened
MESSAGES = 2000
LINES = 5000
WHEEL = 700  # pixels of a turn of the wheel
ROUNDS = 60  # of five turns, in each direction: a page may load more without an end
FLAGS = ["--no-sandbox", "--disable-gpu"]
TRACED = ["disabled-by-default-devtools.timeline", "devtools.timeline", "toplevel"]


@dataclass
class Watched:
    """What the page's main thread did between two looks."""

    long: list[float]  # milliseconds of the long tasks, by the clock
    longest_cpu: float  # milliseconds of the task that used most
    cpu: float  # milliseconds of all tasks


def main() -> None:
    call_command("migrate", verbosity=0)
    with ExitStack() as running:
        port = running.enter_context(serve_lines())
        owner = get_user_model().objects.create(username="reader")
        models = _models(port)
        stored = {
            f"{MESSAGES:,} messages": _many_messages(owner),
            f"an answer of {LINES:,} lines": _conversation(owner, [prose(LINES)]),
            f"a block of {LINES:,} lines": _conversation(owner, [block(LINES)]),
            "blocks of 40 lines": _conversation(owner, [blocks(LINES)]),
            "1,000 formulas": _conversation(owner, [formulas(1000)]),
        }
        streaming = {
            f"{STREAMED:,} lines: {name}": _conversation(owner, [], model)
            for name, model in models.items()
        }
        server = ServerProcess(settings.DATA, {"ENABLE_DEMO": "false"}).start()
        running.callback(server.stop)
        cookie = _sign_in(owner, server)  # before Playwright: it runs an event loop
        playwright = running.enter_context(sync_playwright())
        chromium = os.environ.get("CHROMIUM") or shutil.which("chromium")
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        running.callback(browser.close)
        read = _measure(stored, partial(_measure_reading, browser, server, cookie))
        show("Pages: stored conversations", _READING, read)
        see = partial(_measure_sending, browser, server, cookie)
        chats = {"a new chat": "/", **stored}
        show("Messages until they are seen", _SENDING, _measure(chats, see))
        watch = partial(_measure_streaming, browser, server, cookie)
        show(
            f"Answers that stream, {RATE} lines/s",
            _STREAMING,
            _measure(streaming, watch),
        )


def _measure(
    paths: Mapping[str, str], measure: Callable[[str], Sequence[object]]
) -> list[list[object]]:
    rows: list[list[object]] = []
    for name, path in paths.items():
        if os.environ.get("PAGES", "") not in name:
            continue
        print(f"measuring: {name} ...", file=sys.stderr)
        rows.append([name, *measure(path)])
        print(*rows[-1], file=sys.stderr)
    return rows


# Reading

_READING = [
    "conversation",
    "first text, ms",
    "ready, ms",
    "CPU, ms",
    "long tasks",
    "longest, CPU",
    "scrolling: CPU",
    "long tasks",
    "longest, CPU",
]


def _measure_reading(
    browser: Browser, server: ServerProcess, cookie: Any, path: str
) -> list[object]:
    with _context(browser, server, cookie) as context:
        opened = [_open(browser, context.new_page(), path) for _ in range(OPENED + 1)]
        opened = opened[1:]  # the first one fills the caches
        page = opened[-1][2]
        scrolled = _watch(browser, page, lambda: _scroll(page))
    marks = [marks for marks, _, _ in opened]
    works = [watched for _, watched, _ in opened]
    return [
        median(mark["paint"] for mark in marks),
        median(mark["ready"] for mark in marks),
        median(work.cpu for work in works),
        _in_words([task for work in works for task in work.long]),
        max(work.longest_cpu for work in works),
        scrolled.cpu,
        _in_words(scrolled.long),
        scrolled.longest_cpu,
    ]


def _open(
    browser: Browser, page: Page, path: str
) -> tuple[dict[str, float], Watched, Page]:
    def act() -> None:
        page.goto(path, wait_until="load")
        _rest(page)

    watched = _watch(browser, page, act)
    marks = page.evaluate(
        """() => {
          const [navigation] = performance.getEntriesByType("navigation");
          const [paint] = performance.getEntriesByName("first-contentful-paint");
          return { paint: paint.startTime, ready: navigation.loadEventEnd };
        }"""
    )
    return marks, watched, page


def _scroll(page: Page) -> None:
    """Far up and down again, with the wheel; then to the middle at once."""
    page.mouse.move(640, 400)
    for direction in (-1, 1):
        for _ in range(ROUNDS):
            if not page.evaluate(_IS_FURTHER, direction):
                break
            for _ in range(5):
                page.mouse.wheel(0, direction * WHEEL)
                page.evaluate(_FRAME)
    page.evaluate("scrollTo(0, document.body.scrollHeight / 2)")
    _rest(page)


_FRAME = "new Promise(requestAnimationFrame)"
_IS_FURTHER = """(direction) => direction < 0
  ? scrollY > 0
  : scrollY + innerHeight < document.documentElement.scrollHeight - 1"""


def _rest(page: Page) -> None:
    """Returns when nothing was done for a second."""
    page.evaluate(
        """() => new Promise((resolve) => {
          let timer = setTimeout(resolve, 1000);
          const again = () => {
            clearTimeout(timer);
            timer = setTimeout(resolve, 1000);
          };
          new MutationObserver(again).observe(document.body, {
            childList: true, subtree: true,
          });
        })"""
    )


# Sending

_SENDING = ["conversation", "median, ms", "longest, ms"]
_SENT = 9  # messages
#: Milliseconds from the key to the frame with the message; the server is not asked.
_PRESS_ENTER = """(text) => new Promise((resolve) => {
  const box = document.querySelector("#text");
  document.querySelector("#composer").addEventListener("submit", (event) => {
    event.preventDefault(); // after the page's own listener; a new chat would leave
  });
  box.value = text;
  const options = { key: "Enter", bubbles: true, cancelable: true };
  const since = performance.now();
  box.dispatchEvent(new KeyboardEvent("keydown", options));
  requestAnimationFrame(() => {
    const { port1, port2 } = new MessageChannel();
    port2.onmessage = () => {
      const shown = document.querySelector("#transcript > .turn:last-child");
      if (!shown.innerText.includes(text)) throw new Error("the message is not shown");
      resolve(performance.now() - since);
    };
    port1.postMessage(0); // arrives after the frame is drawn
  });
})"""


def _measure_sending(
    browser: Browser, server: ServerProcess, cookie: Any, path: str
) -> list[object]:
    """Each message is sent from a page of its own."""
    waits = []
    for number in range(_SENT):
        with _context(browser, server, cookie) as context:
            context.add_init_script(_NO_SOCKETS)
            page = context.new_page()
            page.route("**/api/**", lambda route: None)  # never answered
            page.goto(path, wait_until="load")
            _rest(page)
            waits.append(page.evaluate(_PRESS_ENTER, f"Message {number}"))
    return [median(waits), max(waits)]


_NO_SOCKETS = """
window.WebSocket = class {
  static OPEN = 1;
  readyState = 0;
  close() {}
};
"""


# Streaming

_STREAMING = ["answer", "CPU, ms a line", "long tasks", "longest, CPU"]


def _measure_streaming(
    browser: Browser, server: ServerProcess, cookie: Any, path: str
) -> list[object]:
    with _context(browser, server, cookie) as context:
        page = context.new_page()
        page.goto(path)

        def act() -> None:
            page.get_by_label("Message", exact=True).fill("Go.")
            page.keyboard.press("Enter")
            page.locator(".turn .turn-foot").wait_for(timeout=10 * 60_000)
            _rest(page)

        watched = _watch(browser, page, act)
    return [watched.cpu / STREAMED, _in_words(watched.long), watched.longest_cpu]


# The main thread


@contextmanager
def _context(browser: Browser, server: ServerProcess, cookie: Any) -> Iterator[Any]:
    size = {"width": 1280, "height": 800}
    context = browser.new_context(base_url=server.url, viewport=size)
    context.add_cookies([cookie])
    context.add_init_script(
        """window.longTasks = [];
        new PerformanceObserver((list) => {
          longTasks.push(...list.getEntries().map(({ duration }) => duration));
        }).observe({ type: "longtask", buffered: true });"""
    )
    yield context
    context.close()


def _watch(browser: Browser, page: Page, act: Callable[[], None]) -> Watched:
    browser.start_tracing(page=page, categories=TRACED)
    page.evaluate("window.longTasks = []")
    act()
    long = page.evaluate("longTasks")
    events = json.loads(browser.stop_tracing())["traceEvents"]
    tasks = [event["tdur"] / 1e3 for event in _main_tasks(events)]
    if folder := os.environ.get("TRACES"):
        Path(folder, f"{time.monotonic_ns()}.json").write_text(json.dumps(events))
    return Watched(long, max(tasks, default=0.0), sum(tasks))


def _main_tasks(events: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The tasks of the busiest page's main thread."""
    names = {
        (event["pid"], event["tid"])
        for event in events
        if event["name"] == "thread_name"
        and event["args"].get("name") == "CrRendererMain"
    }
    tasks = [
        event
        for event in events
        if event["name"] == "RunTask"
        and "tdur" in event
        and (event["pid"], event["tid"]) in names
    ]
    spent: dict[int, float] = {}
    for task in tasks:
        spent[task["pid"]] = spent.get(task["pid"], 0) + task["tdur"]
    busiest = max(spent, key=lambda pid: spent[pid], default=0)
    return (task for task in tasks if task["pid"] == busiest)


def _in_words(long: Sequence[float]) -> str:
    return f"{len(long)} (≤ {max(long):.0f} ms)" if long else "0"


# Rows


def _models(port: int) -> dict[str, LanguageModel]:
    """A model for each text that streams."""
    provider = Provider.objects.create(
        kind="openai_compatible",
        name="pages",
        base_url=f"http://127.0.0.1:{port}/v1",
        allow_private_network=True,
    )
    return {
        name: LanguageModel.objects.create(
            provider=provider, name=name, capabilities={"tools": False}
        )
        for name in STREAMS
    }


def _many_messages(owner: Any) -> str:
    texts = [prose(12), blocks(60), formulas(3), "Yes.", prose(40)]
    return _conversation(owner, islice(cycle(texts), MESSAGES // 2))


def _conversation(
    owner: Any, answers: Iterable[str], model: LanguageModel | None = None
) -> str:
    """Returns its address."""
    row = Conversation.objects.create(owner=owner, title="Long", language_model=model)
    turns: list[Turn] = []
    items: list[Item] = []
    for text in answers:
        parent = turns[-1] if turns else None
        status = Turn.Status.COMPLETED
        turn = Turn(conversation=row, parent=parent, status=status)
        turns.append(turn)
        asked, said = message("user", "What is it?"), message("assistant", text)
        items.append(Item.of(turn, 0, asked, origin=Item.Origin.INPUT))
        items.append(Item.of(turn, 1, said, origin=Item.Origin.OUTPUT))
    Turn.objects.bulk_create(turns)
    Item.objects.bulk_create(items)
    return f"/chat/{row.pk}/"


def _sign_in(owner: Any, server: ServerProcess) -> Any:
    client = Client()
    client.force_login(owner)
    name = settings.SESSION_COOKIE_NAME
    return {"name": name, "value": client.cookies[name].value, "url": server.url}
