"""Staff of each shipped group meet no link that refuses them: they are crawled."""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Iterator
from html import unescape
from urllib.parse import parse_qs, urljoin, urlsplit

import pytest
from django.contrib.auth.models import Group, Permission, User
from django.test import Client
from django.urls import Resolver404, resolve, reverse

from conversations.models import Conversation
from llm.wire.items import user_message
from tests.conversations.scene import a_user, signed_in, staff
from tests.integration.accessibility.rows import stored_pages
from tools.models import Tool

pytestmark = pytest.mark.django_db

GROUPS = ["Operator", "Tool author", "Billing", "Auditor", "Support"]
SEEING = ["inspect_turn", "view_usage", "inspect_exchange"]  # beside `view_…`
MIN_SEEN = 1  # pages
MAX_ALIKE = 2  # pages of one kind, of which an installation has thousands
#: Served by the web server, or made again at each request.
NOT_FOLLOWED = ("/static/", "/media/", "/admin/jsi18n/")


_LINK = re.compile(r'<a\s[^>]*?href="([^"]+)"')


def links_of(path: str, page: str) -> Iterator[str]:
    """Addresses inside the site, without fragments."""
    for link in _LINK.findall(page):
        parts = urlsplit(urljoin(f"http://testserver{path}", unescape(link)))
        is_inside = parts.scheme in ("http", "https") and parts.netloc == "testserver"
        if is_inside and not parts.path.startswith(NOT_FOLLOWED):
            yield parts._replace(scheme="", netloc="", fragment="").geturl()


def kind_of(link: str) -> tuple[str, ...]:
    """Pages of one view with the same parameters are alike, and lists with any."""
    parts = urlsplit(link)
    try:
        name = resolve(parts.path).view_name
    except Resolver404:
        return (link,)
    names = sorted(parse_qs(parts.query, keep_blank_values=True))
    return (name, "any") if names and name.endswith("_changelist") else (name, *names)


def crawl(client: Client, start: list[str]) -> dict[str, tuple[int, str]]:
    """The status of each page that links lead to, and a page that has the link."""
    answers: dict[str, tuple[int, str]] = {}
    alike: Counter[tuple[str, ...]] = Counter()
    queue = deque((link, "the start") for link in start)
    while queue:
        link, source = queue.popleft()
        kind = kind_of(link)
        if link in answers or alike[kind] >= MAX_ALIKE:
            continue
        alike[kind] += 1
        answer = client.get(link, follow=True)
        answers[link] = (answer.status_code, source)
        is_page = answer.get("Content-Type", "").startswith("text/html")
        if is_page and link.startswith("/admin/") and kind[-1] != "any":
            found = links_of(answer.request["PATH_INFO"], answer.content.decode())
            queue.extend((each, link) for each in found)
    return answers


@pytest.fixture
def rows(settings) -> dict[str, str]:
    settings.SHARE_LINKS = "public"
    User.objects.create_superuser("admin")
    Tool.objects.sync()
    return stored_pages()


def refusals(client: Client, start: list[str]) -> dict[str, tuple[int, str]]:
    """The links that lead to no page, and how many pages were seen."""
    client.post(reverse("admin:reading_reason"), {"reason": "Ticket 4711"})
    allowed = [path for path in start if client.get(path).status_code == 200]
    answers = crawl(client, [reverse("admin:index"), *allowed])
    assert len(answers) > MIN_SEEN
    return {link: answer for link, answer in answers.items() if answer[0] != 200}


def a_member(name: str) -> User:
    member = a_user(name, is_staff=True)
    member.groups.add(Group.objects.get(name=name))
    return member


def an_onlooker() -> User:
    user = a_user("onlooker", is_staff=True)
    every = Permission.objects.filter(codename__startswith="view_")
    user.user_permissions.set(every | Permission.objects.filter(codename__in=SEEING))
    return user


def who_sees(label: str) -> User:
    app, name = label.lower().split(".")
    rights = Permission.objects.filter(content_type__app_label=app)
    user = a_user(label, is_staff=True)
    user.user_permissions.set(rights.filter(codename=f"view_{name}"))
    return user


@pytest.mark.slow
@pytest.mark.smoke
@pytest.mark.parametrize("group", [*GROUPS, "an onlooker"])
def test_no_link_of_the_admin_refuses_a_member(rows: dict[str, str], group: str):
    start = [path for kind, path in rows.items() if kind.startswith("admin")]
    user = a_member(group) if group in GROUPS else an_onlooker()
    assert refusals(signed_in(user), start) == {}


@pytest.mark.slow
def test_no_link_refuses_who_may_see_rows_of_one_kind(rows: dict[str, str]):
    pages = {kind.split()[-1]: path for kind, path in rows.items() if "row" in kind}
    found = {
        label: refusals(signed_in(who_sees(label)), [path])
        for label, path in pages.items()
    }
    assert found == {label: {} for label in pages}


def test_operators_see_the_live_board_and_read_nobodys_turn(conversation: Conversation):
    turn = conversation.open_turn([user_message("How do I pay?")]).turn
    client = signed_in(a_member("Operator"))
    board = reverse("admin:conversations_engine")
    assert board in client.get(reverse("admin:index")).content.decode()
    page = client.get(board).content.decode()
    assert turn.pk in page
    assert "How do I pay?" not in page
    assert reverse("admin:conversations_turn_change", args=[turn.pk]) not in page
    assert reverse("admin:conversations_engine_maintenance") in page


def test_each_shipped_group_of_staff_is_crawled():
    shipped = set(Group.objects.values_list("name", flat=True))
    assert shipped - {"User"} == set(GROUPS)


@pytest.mark.parametrize(
    ("rights", "is_offered"),
    [(["view_user"], False), (["view_user", "change_user"], True)],
)
def test_only_who_may_change_a_user_is_offered_the_password_button(
    rights: list[str], is_offered: bool
):
    ada = a_user("ada")
    client = signed_in(staff("clerk", *rights))
    page = client.get(reverse("admin:auth_user_change", args=[ada.pk]))
    address = reverse("admin:auth_user_password_change", args=[ada.pk])
    assert page.status_code == 200
    assert ("Reset password" in page.text) is is_offered
    assert ("field-password" in page.text) is is_offered
    assert (client.get(address).status_code == 200) is is_offered


def test_nobody_is_offered_the_password_of_who_has_more_rights():
    chief = User.objects.create_superuser("chief", password="x")
    client = signed_in(staff("clerk", "view_user", "change_user"))
    page = client.get(reverse("admin:auth_user_change", args=[chief.pk]))
    assert page.status_code == 200
    assert "field-password" not in page.text
    address = reverse("admin:auth_user_password_change", args=[chief.pk])
    assert client.get(address).status_code == 403
