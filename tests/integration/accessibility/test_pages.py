"""axe-core on each kind of page: both themes, wide and narrow, and at 200 %.

Also the page's width, and on a touch screen the size of all that is tapped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.integration.accessibility.checks import find_faults
from tests.integration.accessibility.site import (
    DESKTOP,
    PHONE,
    ZOOMED,
    Site,
    show,
    start_site,
    user_of,
)
from tests.integration.accessibility.staff_rows import PLAIN
from tests.integration.browser.test_chat import browser

__all__ = ["browser"]

pytestmark = [pytest.mark.browser, pytest.mark.server]

#: Kinds of pages of the ordinary run; the slow one has all.
FEW = ("formula and table", "approval", "library", "settings")
WIDTH = 390  # of a phone
SCREENS = {"wide": DESKTOP, "narrow": PHONE, "zoomed": ZOOMED}


@pytest.fixture(scope="module")
def site(
    browser: Browser, migrated_data: Any, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    site = start_site(browser, migrated_data, tmp_path_factory.mktemp("site"))
    yield site
    site.server.kill()


def faults_of(
    site: Site, names: Iterable[str], screen: str, theme: str
) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    users = {user_of(name) for name in names}
    for user in users:
        with site.context(user, color_scheme=theme, **SCREENS[screen]) as context:
            for name in [name for name in names if user_of(name) == user]:
                page = context.new_page()
                show(page, name, site.paths[name])
                # Staff sit at a desk; the admin's rows are as close as Django has them.
                is_touched = screen == "narrow" and not name.startswith("admin")
                found[name] = find_faults(page, is_touched=is_touched)
                page.close()
    return {name: faults for name, faults in found.items() if faults}


@pytest.mark.parametrize(
    ("screen", "theme"), [("wide", "light"), ("narrow", "dark"), ("zoomed", "light")]
)
def test_a_page_of_each_sort_has_no_fault(site: Site, screen: str, theme: str):
    assert faults_of(site, FEW, screen, theme) == {}


@pytest.mark.slow
@pytest.mark.nightly  # over 50 pages a case: minutes beside other browsers
@pytest.mark.timeout(900)
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("screen", SCREENS)
def test_no_page_has_a_fault(site: Site, screen: str, theme: str):
    names = [name for name in site.paths if not name.startswith(PLAIN)]
    assert len(names) > 50
    assert faults_of(site, names, screen, theme) == {}


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.timeout(900)
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_no_list_or_form_of_the_admin_has_a_fault(site: Site, theme: str):
    names = [name for name in site.paths if name.startswith(PLAIN)]
    assert len(names) > 60
    assert faults_of(site, names, "wide", theme) == {}


@pytest.mark.slow
def test_no_list_or_row_of_the_admin_is_wider_than_a_phone(site: Site):
    wide = {}
    names = [name for name in site.paths if name.startswith(PLAIN)]
    with site.context("admin", **PHONE) as context:
        page = context.new_page()
        for name in names:
            page.goto(site.paths[name])
            width = page.evaluate("document.documentElement.scrollWidth")
            if width > WIDTH:
                wide[name] = width
    assert wide == {}


@pytest.mark.slow
def test_on_a_phone_the_list_of_turns_shows_more_than_ids(site: Site):
    with site.open("admin list conversations.Turn", **PHONE) as page:
        for column in ("id", "status"):
            box = page.locator(f"tbody .field-{column}").first.bounding_box()
            assert box
            assert box["x"] + box["width"] <= WIDTH


@pytest.mark.slow
def test_the_checks_find_what_is_wrong(site: Site):
    """Otherwise the tests above would pass with broken checks."""
    with site.open("settings", **PHONE) as page:
        spoil(page, "img", width="100px")
        spoil(page, "p", width="2000px")
        spoil(page, "button", width="20px")
        faults = "\n".join(find_faults(page, is_touched=True))
    assert "image-alt" in faults
    assert "wider than the page" in faults
    assert "small target: 20 x" in faults


def test_paper_shows_all_compared_answers_without_buttons(site: Site):
    with site.open("comparison", **PHONE) as page:
        page.emulate_media(media="print")
        expect(page.get_by_role("button", name="Go on with this answer")).to_be_hidden()
        answers = page.locator(".compared")
        assert answers.count() == 2
        for answer in answers.all():
            box = answer.bounding_box()
            assert box
            assert box["x"] + box["width"] <= WIDTH


def spoil(page: Page, tag: str, width: str) -> None:
    page.evaluate(
        """([tag, width]) => {
          const node = document.querySelector("main").appendChild(
            document.createElement(tag));
          node.textContent = "x";
          node.style.width = width;
          if (tag === "img") node.src = "/static/img/favicon.svg";
        }""",
        [tag, width],
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", ["approval", "formula and table", "settings"])
def test_a_page_read_from_right_to_left_fits_as_well(site: Site, name: str):
    """As a language that is written so lays it out."""
    with site.open(name, **PHONE) as page:
        page.evaluate("document.documentElement.dir = 'rtl'")
        assert find_faults(page, is_touched=True) == []


@pytest.mark.slow
def test_the_drawer_of_a_narrow_screen_is_checked_as_well(site: Site):
    with site.open("approval", **PHONE, reduced_motion="reduce") as page:
        page.get_by_role("button", name="Conversations").tap()
        drawer = page.locator("#sidebar")
        expect(drawer).to_be_visible()
        assert find_faults(page, is_touched=True) == []
        page.evaluate("document.documentElement.dir = 'rtl'")
        box = drawer.bounding_box()
        assert box
        assert round(box["x"] + box["width"]) == 390  # at the side where lines begin
        drawer.get_by_role("button", name="Close", exact=True).tap()
        expect(drawer).to_be_hidden()


@pytest.mark.slow
def test_the_message_box_stays_above_the_keyboard_of_the_screen(site: Site):
    """`interactive-widget=resizes-content`: the keyboard makes the page lower."""
    with site.open("formula and table", **PHONE) as page:
        meta = page.locator("meta[name=viewport]")
        content = meta.get_attribute("content") or ""
        assert "interactive-widget=resizes-content" in content
        assert "viewport-fit=cover" in content  # safe areas
        page.set_viewport_size({"width": 390, "height": 480})
        page.get_by_role("textbox", name="Message").focus()
        box = page.locator("#composer").bounding_box()
        assert box
        assert box["y"] >= 0
        assert box["y"] + box["height"] <= 480


@pytest.mark.slow
@pytest.mark.parametrize("screen", ["wide", "narrow"])
def test_the_list_of_models_is_checked_as_well(site: Site, screen: str):
    with site.open("new chat", **SCREENS[screen], reduced_motion="reduce") as page:
        page.locator("#choose-model").click()
        expect(page.get_by_role("dialog", name="Choose a model")).to_be_visible()
        assert find_faults(page, is_touched=screen == "narrow") == []
        page.evaluate("document.documentElement.dir = 'rtl'")
        assert find_faults(page) == []
