"""Usage in a real browser: from the admin's first page to a call, a file and a bill."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.conftest import StartServer
from tests.integration.browser.people.test_account import sign_in
from tests.integration.browser.test_chat import browser

__all__ = ["browser"]

pytestmark = [pytest.mark.browser, pytest.mark.slow]

STORE = """
from decimal import Decimal
from django.contrib.auth.models import User
from llm.models import ModelCall, Provider
Provider.objects.create(name="Host", kind="openai")
admin = User.objects.get(username="admin")
for number in range(3):
    ModelCall.objects.create(
        provider_name="Host", model_name="=small", user=admin, status="completed",
        input_tokens=100, output_tokens=50, cost=Decimal("0.5"), ttft=0.4,
        tags="<b>red</b>", is_estimated=number == 2,
    )
"""
BILL = "usage_date_utc,model,cost_usd\n2026-03-01,small,9\n"


def test_staff_find_what_models_cost_and_compare_a_bill(
    browser: Any, start_server: StartServer, tmp_path: Path
):
    server = start_server()
    server.manage("shell", "-v0", "-c", STORE)
    context = browser.new_context(base_url=server.url)
    page = context.new_page()
    problems: list[str] = []
    page.on("console", lambda line: problems.append(line.text))
    sign_in(page, "admin")
    page.goto("/admin/")
    page.get_by_role("link", name="Usage", exact=True).click()
    expect(page.get_by_role("img", name="Cost by day")).to_be_visible()
    expect(page.get_by_role("row", name="Host/=small").first).to_contain_text("~$1.50")

    page.get_by_label("by", exact=True).select_option("tag")
    page.get_by_role("button", name="Show").click()
    expect(page.get_by_role("link", name="<b>red</b>")).to_be_visible()

    with page.expect_download() as found:
        page.get_by_role("link", name="Download as CSV").click()
    file = tmp_path / "usage.csv"
    found.value.save_as(file)
    assert "<b>red</b>,3,0,300," in file.read_text()

    page.get_by_role("link", name="<b>red</b>").click()
    expect(page.locator("#result_list tbody tr")).to_have_count(3)

    page.goto("/admin/usage/")
    page.get_by_role("link", name="Compare a bill").click()
    page.get_by_label("Provider").select_option("Host")
    bill = tmp_path / "bill.csv"
    bill.write_text(BILL)
    page.get_by_label("CSV file").set_input_files(bill)
    page.get_by_role("button", name="Compare").click()
    expect(page.get_by_role("row", name="March 1, 2026 small")).to_contain_text(
        "-100.0"
    )

    page.goto("/settings/usage/")
    expect(page.get_by_role("row", name="Host/=small").first).to_contain_text("~$1.50")
    assert problems == []  # such as what the page's policy forbids
    context.close()
