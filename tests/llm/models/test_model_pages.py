"""The admin's pages of models: the way of a request, with the state of each model."""

from __future__ import annotations

import html
import re
from datetime import timedelta

import pytest
from django.contrib.auth.models import Group, Permission, User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone
from django.utils.html import strip_tags

from llm import router
from llm.models import LanguageModel, Provider

pytestmark = pytest.mark.django_db

PATHS = "/admin/llm/languagemodel/paths/"


@pytest.fixture
def provider() -> Provider:
    provider = Provider.objects.create(name="Groq", kind="groq")
    provider.keys.create(secret="gsk-1")
    provider.models.create(name="large", alias="best")
    return provider


def staff(*codenames: str) -> Client:
    """A client of somebody with these rights in the admin and no others."""
    user = User.objects.create_user("few-rights", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=codenames))
    client = Client()
    client.force_login(user)
    return client


def change_page(model: LanguageModel) -> str:
    return reverse("admin:llm_languagemodel_change", args=[model.pk])


def words(page: str) -> str:
    return re.sub(r"\s+", " ", html.unescape(strip_tags(page)))


def stops(page: str) -> list[str]:
    """The text of each box of the first path on the page."""
    [path, *_] = re.findall(r'<div class="model-path">(.*?)</ol>', page, re.DOTALL)
    boxes = re.findall(r"<li.*?>(.*?)</li>", path, re.DOTALL)
    return [words(box).strip() for box in boxes]


# The way of a request


@pytest.mark.parametrize("names", ["cab", "bca", "abc"])
def test_fallbacks_keep_the_order_in_which_staff_choose_them(
    admin_client: Client, provider: Provider, names: str
):
    model = provider.models.get()
    rows = {name: provider.models.create(name=name) for name in "abc"}
    model.fallbacks.add(*rows.values())
    wanted = [str(rows[name].pk) for name in names]
    values = {"provider": provider.pk, "name": "large", "fallbacks": wanted}
    values |= {f"dated_prices-{name}_FORMS": 0 for name in ("TOTAL", "INITIAL")}
    assert admin_client.post(change_page(model), values).status_code == 302
    shown = admin_client.get(change_page(model))
    assert [each.partition(" ")[0] for each in stops(shown.text)[2:]] == [
        f"Groq/{name}" for name in names
    ]
    chosen = re.findall(r'<option value="(\d+)" selected>', fallback_box(shown.text))
    assert chosen == wanted
    routes = router.routes_of(router.route_of(model))
    assert [route.model for route in routes[1:]] == list(names)


def fallback_box(page: str) -> str:
    return page.partition('<select name="fallbacks"')[2].partition("</select>")[0]


def test_the_path_leads_from_the_names_to_the_fallbacks_in_their_order(
    admin_client: Client, provider: Provider
):
    model = provider.models.get()
    other = Provider.objects.create(name="Other", kind="groq", enabled=False)
    last, first = other.models.create(name="b"), provider.models.create(name="z")
    first.enabled = False
    first.save()
    last.groups.add(Group.objects.create(name="Staff & co"))
    model.fallbacks.add(first)
    model.fallbacks.add(last)
    for address in (PATHS, change_page(model)):
        page = admin_client.get(address).text
        names, start, second, third = stops(page)
        assert names == "bestGroq/large"
        assert start == "Groq/large first not called lately"
        assert second == "Groq/z fallback 1 off The model is switched off."
        assert third.startswith("Other/b fallback 2 off Its provider 'Other'")
        assert third.endswith("only for Staff & co")
        assert "E_LLM_PROVIDER_DOWN" in words(page)


def test_a_key_that_rests_for_one_model_shows_only_there(admin_client, provider):
    model, other = provider.models.get(), provider.models.create(name="b", alias="b")
    until = (timezone.now() + timedelta(hours=1)).isoformat()
    provider.keys.update(model_rests={"large": {"until": until, "reason": "x"}})
    assert (
        "fails Resting for this model: default"
        in stops(admin_client.get(change_page(model)).text)[1]
    )
    assert "Resting" not in stops(admin_client.get(change_page(other)).text)[1]
    provider.keys.create(label="second", secret="gsk-2")
    assert "works in part" in stops(admin_client.get(change_page(model)).text)[1]
    provider.keys.update(state="disabled", state_reason="E_LLM_INVALID_KEY: refused")
    assert "fails" in stops(admin_client.get(change_page(other)).text)[1]


def test_the_path_of_a_retired_model_goes_on_at_its_replacement(admin_client, provider):
    model, new = provider.models.get(), provider.models.create(name="new")
    new.fallbacks.add(provider.models.create(name="next"))
    model.retires_at = timezone.now()
    model.save()
    assert stops(admin_client.get(change_page(model)).text)[1:] == [
        "Groq/large retired off Requests for it are refused."
    ]
    model.replacement = new
    model.save()
    assert stops(admin_client.get(PATHS).text)[1:] == [
        "Groq/large retired off Its replacement answers.",
        "Groq/new first not called lately",
        "Groq/next fallback 1 not called lately",
    ]


def test_an_invalid_policy_is_named_and_none_hides_nothing(admin_client, provider):
    model = provider.models.get()
    model.fallbacks.add(provider.models.create(name="b"))
    for retry, shown in (
        ({"tries": 3}, "Its option “retry” is invalid"),
        ({"fall_back_on": []}, "names no error"),
    ):
        LanguageModel.objects.filter(pk=model.pk).update(options={"retry": retry})
        assert shown in words(admin_client.get(PATHS).text)


def test_the_number_of_queries_does_not_depend_on_the_number_of_paths(
    admin_client, provider
):
    def count() -> int:
        with CaptureQueriesContext(
            connection,
        ) as queries:
            assert admin_client.get(PATHS).status_code == 200
        return len(queries)

    admin_client.get(PATHS)
    before = count()
    model = provider.models.get()
    for number in range(5):
        fallback = provider.models.create(name=f"m{number}", alias=f"m{number}")
        model.fallbacks.add(fallback)
        fallback.fallbacks.add(model)
    assert count() == before


def test_who_may_not_see_models_sees_no_paths(provider: Provider):
    assert staff("view_provider").get(PATHS).status_code == 403


def test_who_may_only_look_sees_the_path(provider: Provider):
    client, model = staff("view_languagemodel"), provider.models.get()
    assert client.get(PATHS).status_code == 200
    assert "Groq/large" in stops(client.get(change_page(model)).text)[1]


def test_hostile_names_are_text_on_the_path(admin_client, provider):
    hostile = "<script>alert(1)</script>"
    LanguageModel.objects.update(name=hostile, label=hostile)
    assert hostile not in admin_client.get(PATHS).text
