"""Take the pictures of README.md and `docs/`: `python -m benchmarks.screenshots`, which
takes names of files to take only those.

They show a server of its own with the conversations of
`tests/integration/accessibility/rows.py`. Needs Chromium and the development
environment.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, sync_playwright

from tests.integration.accessibility.site import (
    DESKTOP,
    ENVIRONMENT,
    PHONE,
    STORE,
    Site,
)
from tests.integration.accessibility.texts import LEAVING
from tests.llm.probing.host import ProbedHost
from tests.serving import BASE, SpawnedProcess

DOCS = BASE / "docs"
BILLED = ("0.41", "0.75", "0.20")  # USD of a day, on the vendor's bill
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
            "request check",
            "question",
            "events",
            "exchange",
            "new replay",
            "key import",
            "rotation",
            "sync of models",
            "deletion",
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
            "new evaluation",
            "key",
            "model",
            "mcp servers",
            "mcp server",
            "preset",
            "replay sets",
            "replay",
        )
    ),
    *(
        (f"policies/{kind.replace(' ', '-')}.png", f"admin {kind}", "light", screen, "")
        for kind, screen in (
            ("audit log", LAPTOP),
            ("audit event", LAPTOP),
            ("reason", LAPTOP),
            ("limits", LAPTOP),
            ("limit", LAPTOP),
            ("raises", DESKTOP),
            ("new raise", LAPTOP),
            ("identity providers", DESKTOP),
            ("identity provider", LAPTOP),
            ("invitations", LAPTOP),
            ("legal holds", LAPTOP),
            ("new legal hold", LAPTOP),
            ("retention rules", LAPTOP),
            ("erasure", LAPTOP),
        )
    ),
    ("policies/terms.png", "new terms", "light", LAPTOP, ""),
    ("screenshot-phone.png", "tools and thoughts", "light", PHONE, ".turn"),
]


HOSTS = ExitStack()  # they answer until the pictures are taken

#: Pages that an action of a list opens, by the list's path.
PAGES_OF_ACTIONS = {
    "admin sync of models": "/admin/llm/provider/add/",
    "admin question": "/admin/llm/apikey/",
    "admin erasure": f"/admin/auth/user/?q={LEAVING}",
}


def main(*wanted: str) -> None:
    chromium = shutil.which("chromium")
    chosen = [each for each in PICTURES if not wanted or each[0] in wanted]
    with HOSTS, tempfile.TemporaryDirectory(prefix="parley-pictures-") as folder:
        server = SpawnedProcess(Path(folder) / "data", ENVIRONMENT)
        server.start()
        try:
            stored = server.manage("shell", "-v0", "-c", STORE)
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(
                    executable_path=chromium, args=["--no-sandbox"]
                )
                paths = json.loads(stored.splitlines()[-1])
                site = Site(browser, server, {**paths, **PAGES_OF_ACTIONS})
                for picture in chosen:
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


def compare_bill(page: Page) -> None:
    today = datetime.now(tz=UTC).date()
    days = [today - timedelta(days=back) for back in (2, 3, 4)]
    name = "claude-sonnet-4-5"  # in the form of Anthropic's exports
    lines = [f"{day},{name},{cost}" for day, cost in zip(days, BILLED, strict=True)]
    text = "\n".join(["usage_date_utc,model,cost_usd", *lines, ""])
    page.get_by_label("Provider").select_option("Anthropic")
    file: Any = {"name": "costs.csv", "mimeType": "text/csv", "buffer": text.encode()}
    page.get_by_label("CSV file").set_input_files(file)
    page.get_by_role("button", name="Compare").click()
    page.get_by_role("table").first.wait_for()


def run_dry(page: Page) -> None:
    page.get_by_label("Arguments").fill('{"expression": "17 * 23"}')
    page.get_by_role("button", name="Run").click()
    page.get_by_role("heading", name="Result").wait_for()


def try_source(page: Page) -> None:
    page.get_by_role("button", name="Try").click()
    page.get_by_role("heading", name="Result").wait_for()


def compare_versions(page: Page) -> None:
    address = page.url
    form = address.replace("versions/", "change/")
    for text in ("Adds and multiplies.", "Adds, multiplies and takes roots."):
        page.goto(form)
        page.get_by_label("Description:").fill(text)
        page.get_by_role("button", name="Save", exact=True).click()
    page.goto(address)


def send_prompt(page: Page) -> None:
    models = page.get_by_label("Models")
    demo = models.locator("option").filter(has_text=re.compile("^demo/"))
    values = [each.get_attribute("value") or "" for each in demo.all()]
    models.select_option(value=values)
    page.get_by_label("Prompt").fill("/echo Tea needs five minutes.")
    page.get_by_role("button", name="Send").click()
    page.get_by_role("button", name="Delete this test").wait_for()
    _scroll_to(page, "form .submit-row")


def ask_about_keys(page: Page) -> None:
    page.goto("/admin/llm/apikey/")
    for box in page.locator("input.action-select").all()[:2]:
        box.check()
    page.get_by_label("Action:").select_option(label="Disable the selected keys…")
    page.locator("button[name=index]").first.click()
    page.get_by_role("button", name="Yes, I’m sure").wait_for()


def ask_about_erasure(page: Page) -> None:
    page.locator("input.action-select").first.check()
    page.get_by_label("Action:").select_option(label="Erase the selected users…")
    page.locator("button[name=index]").first.click()
    page.get_by_label("Reason").fill("Request of 26 November, ticket 4711")


def list_models(page: Page) -> None:
    host = ProbedHost(models=["orchard-7b", "orchard-32b", "orchard-7b-think"])
    url = HOSTS.enter_context(host.listening())
    page.get_by_label("Name:", exact=True).first.fill("Orchard")
    page.get_by_label("Kind:").select_option("openai_compatible")
    page.locator("#id_base_url").fill(url)
    page.locator("#id_allow_private_network").check()
    page.locator("#id_keys-0-secret").fill("ok-0123456789")
    page.get_by_role("button", name="Save and test connection").click()
    page.get_by_label("orchard-7b-think").check()


#: What is done on a page before its picture is taken.
ACTS: dict[str, Callable[[Page], None]] = {
    "admin configuration": show_differences,
    "admin bill": compare_bill,
    "admin dry run": run_dry,
    "admin context source": try_source,
    "admin tool versions": compare_versions,
    "admin test prompt": send_prompt,
    "admin question": ask_about_keys,
    "admin erasure": ask_about_erasure,
    "admin sync of models": list_models,
}


def _take(
    site: Site, file: str, name: str, theme: str, screen: dict[str, Any], top: str
) -> None:
    with site.open(name, color_scheme=theme, **screen) as page:
        if act := ACTS.get(name):
            act(page)
        if top:
            _scroll_to(page, top)
        page.screenshot(path=DOCS / file, animations="disabled")
    print(f"docs/{file}: {(DOCS / file).stat().st_size // 1024} KiB")


def _scroll_to(page: Page, selector: str) -> None:
    page.locator(selector).first.evaluate(
        "node => scrollTo({ top: node.offsetTop - 70, behavior: 'instant' })"
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
