"""Take the pictures of README.md and `docs/`: `python -m benchmarks.screenshots`.

They show a server of its own with the conversations of
`tests/integration/accessibility/rows.py`. Needs Chromium and the development
environment.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, sync_playwright

from tests.integration.accessibility.site import DESKTOP, PHONE, STORE, Site
from tests.serving import BASE, SpawnedProcess

DOCS = BASE / "docs"
LAPTOP = {"viewport": {"width": 1280, "height": 800}}
#: File, kind of page, theme, screen, and what is scrolled to the top.
PICTURES: list[tuple[str, str, str, dict[str, Any], str]] = [
    ("screenshot.png", "formula and table", "light", LAPTOP, ".turn"),
    ("screenshot-approval.png", "approval", "dark", LAPTOP, ""),
    ("screenshot-probe.png", "admin probe", "light", LAPTOP, ""),
    ("screenshot-grants.png", "admin grants", "light", LAPTOP, ""),
    ("screenshot-mcp-health.png", "admin mcp health", "light", LAPTOP, ""),
    ("screenshot-mcp-review.png", "admin mcp review", "light", LAPTOP, ""),
    ("screenshot-first-steps.png", "admin", "light", DESKTOP, ""),
    ("screenshot-board.png", "admin board", "dark", DESKTOP, ""),
    ("screenshot-timeline.png", "admin turn", "light", DESKTOP, ""),
    ("screenshot-replay.png", "admin replayed turn", "light", DESKTOP, ""),
    ("screenshot-provider.png", "admin provider", "light", DESKTOP, ""),
    ("screenshot-statistics.png", "admin tool statistics", "dark", DESKTOP, ""),
    ("screenshot-configuration.png", "admin configuration", "light", DESKTOP, ""),
    ("screenshot-usage.png", "admin usage", "light", DESKTOP, ""),
    ("screenshot-usage-own.png", "usage", "dark", LAPTOP, ""),
    ("screenshot-evaluation.png", "admin evaluation results", "light", LAPTOP, ""),
    ("screenshot-fallback-paths.png", "admin fallback paths", "light", LAPTOP, ""),
    *(
        (f"console/{kind.replace(' ', '-')}.png", f"admin {kind}", "light", LAPTOP, "")
        for kind in (
            "sign in",
            "first steps",
            "bill",
            "events",
            "exchange",
            "new replay",
            "key import",
            "rotation",
            "capabilities",
            "test prompt",
            "import of tools",
            "dry run",
            "tool",
            "tool versions",
            "mcp tools",
            "context source",
            "preset versions",
            "prompt versions",
            "draft",
            "preview",
            "evaluations",
            "evaluation",
        )
    ),
    ("screenshot-phone.png", "tools and thoughts", "light", PHONE, ".turn"),
]


def main() -> None:
    chromium = shutil.which("chromium")
    with tempfile.TemporaryDirectory(prefix="parley-pictures-") as folder:
        server = SpawnedProcess(Path(folder) / "data", {"SHARE_LINKS": "public"})
        server.start()
        try:
            stored = server.manage("shell", "-v0", "-c", STORE)
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(
                    executable_path=chromium, args=["--no-sandbox"]
                )
                site = Site(browser, server, json.loads(stored.splitlines()[-1]))
                for picture in PICTURES:
                    _take(site, *picture)
                browser.close()
        finally:
            server.kill()


def show_differences(page: Page) -> None:
    """Between the present configuration and one with another label."""
    with page.expect_download() as download:
        page.get_by_role("link", name="Export as a file").click()
    text = download.value.path().read_text().replace("GPT-5 mini", "GPT-5 small")
    file: Any = {
        "name": "parley.toml",
        "mimeType": "application/toml",
        "buffer": text.encode(),
    }
    page.get_by_label("Configuration file").set_input_files(file)
    page.get_by_role("button", name="Show the differences").click()
    page.get_by_role("heading", name="What the file would change").wait_for()


def _take(
    site: Site, file: str, name: str, theme: str, screen: dict[str, Any], top: str
) -> None:
    with site.open(name, color_scheme=theme, **screen) as page:
        if name == "admin configuration":
            show_differences(page)
        if top:
            _scroll_to(page, top)
        page.screenshot(path=DOCS / file, animations="disabled")
    print(f"docs/{file}: {(DOCS / file).stat().st_size // 1024} KiB")


def _scroll_to(page: Page, selector: str) -> None:
    page.locator(selector).first.evaluate(
        "node => scrollTo({ top: node.offsetTop - 70, behavior: 'instant' })"
    )


if __name__ == "__main__":
    main()
