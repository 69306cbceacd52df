"""The admin's page of a model's capabilities: sources, dates and single overrides."""

from __future__ import annotations

import html
import re
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.utils import timezone
from django.utils.formats import date_format
from django.utils.html import strip_tags

from llm import router
from llm.capabilities import bundled_date
from llm.models import LanguageModel, Provider

pytestmark = pytest.mark.django_db


@pytest.fixture
def model() -> LanguageModel:
    provider = Provider.objects.create(name="OpenAI", kind="openai")
    provider.keys.create(secret="sk-1")
    return provider.models.create(
        name="gpt-5.1", probed_capabilities={"vision": False}, probed_at=timezone.now()
    )


def address(model: LanguageModel) -> str:
    return f"/admin/llm/languagemodel/{model.pk}/capabilities/"


def source(client: Client, model: LanguageModel, name: str) -> str:
    """The words of the capability's row up to its form."""
    page = client.get(address(model)).text
    [row] = re.findall(
        rf"<tr>\s*<th scope=\"row\">\s*<code>{name}<.*?</tr>", page, re.S
    )
    words = strip_tags(row.split("<form")[0])
    return " ".join(html.unescape(words).split())


def change(client: Client, model: LanguageModel, name: str, **fields: Any) -> str:
    answer = client.post(address(model), {"name": name, **fields}, follow=True)
    return " ".join(map(str, answer.context["messages"]))


def test_each_capability_names_its_source_and_date(admin_client: Client, model):
    today = date_format(timezone.localdate(), "DATE_FORMAT")
    assert source(admin_client, model, "sampling").endswith(
        f"bundled data {bundled_date()}"
    )
    assert source(admin_client, model, "vision").startswith("vision false probed")
    assert today in source(admin_client, model, "vision")
    assert source(admin_client, model, "background_resume").endswith("unknown –")
    change(admin_client, model, "vision", value="true")
    assert "true overridden by staff " + today in source(admin_client, model, "vision")


def test_a_single_override_counts_and_returns_to_the_default(admin_client, model):
    for name, value, read in (("vision", "true", True), ("context_window", "9", 9)):
        before = getattr(router.resolve("gpt-5.1").capabilities, name)
        change(admin_client, model, name, value=value)
        assert getattr(router.resolve("gpt-5.1").capabilities, name) is read
        assert "Return to" in admin_client.get(address(model)).text
        change(admin_client, model, name, reset="1")
        assert getattr(router.resolve("gpt-5.1").capabilities, name) == before
    model.refresh_from_db()
    assert (model.capabilities, model.context_window) == ({}, None)
    assert model.overridden_at == {}


def test_the_form_of_the_model_dates_what_it_changes(admin_client, model):
    change(admin_client, model, "vision", value="true")
    first = LanguageModel.objects.get().overridden_at["vision"]
    form = {
        "provider": model.provider_id,
        "name": model.name,
        "enabled": "on",
        "capabilities": '{"vision": true, "stop": false}',
        "dated_prices-TOTAL_FORMS": 0,
        "dated_prices-INITIAL_FORMS": 0,
    }
    page = f"/admin/llm/languagemodel/{model.pk}/change/"
    assert admin_client.post(page, form).status_code == 302
    dates = LanguageModel.objects.get().overridden_at
    assert dates["vision"] == first < dates["stop"]


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("vision", "maybe", "Enter a value as JSON"),
        ("vision", "", "Enter a value as JSON"),
        ("vision", "[" * 900, "Enter a value as JSON"),
        ("vision", '"' + "x" * 5_000 + '"', "Enter a value as JSON"),
        ("vision", "3", "'vision' cannot be 3"),
        ("efforts", '["hard"]', "write a list of"),
        ("context_window", "-1", "use a whole number above 0"),
        ("context_window", "null", "return to its default"),
        ("telepathy", "true", "'telepathy' is unknown"),
    ],
)
def test_wrong_overrides_are_explained(admin_client, model, name, value, shown: str):
    assert shown in change(admin_client, model, name, value=value)
    model.refresh_from_db()
    assert (model.capabilities, model.context_window) == ({}, None)


def test_a_limit_beyond_the_column_is_refused(admin_client, model):
    assert "too large" in change(
        admin_client, model, "context_window", value="99999999999"
    )


def test_staff_see_and_override_what_their_rights_allow(model):
    user = User.objects.create_user("few-rights", is_staff=True)
    client = Client()
    client.force_login(user)
    assert client.get(address(model)).status_code == 403
    right = Permission.objects.get(codename="view_languagemodel")
    user.user_permissions.add(right)
    assert "<form method" not in client.get(address(model)).text.split("<table")[1]
    sent = {"name": "vision", "value": "true"}
    assert client.post(address(model), sent).status_code == 403
    model.refresh_from_db()
    assert model.capabilities == {}


def test_no_model_has_no_page(admin_client):
    for pk in ("1", "x", "9" * 40):
        answer = admin_client.get(f"/admin/llm/languagemodel/{pk}/capabilities/")
        assert answer.status_code == 404


def test_a_wrong_override_stays_in_its_field(admin_client, model):
    answer = admin_client.post(address(model), {"name": "stop", "value": '"perhaps'})
    assert answer.status_code == 400
    fields = re.findall(r"<input[^>]*name=\"value\"[^>]*>", answer.text)
    [wrong] = [each for each in fields if "aria-invalid" in each]
    assert 'value="&quot;perhaps"' in wrong
    assert "Value of stop as JSON" in wrong


def test_a_value_that_a_sync_has_stored_is_not_shown_as_of_staff(admin_client, model):
    model.store_listed({"vision": True})
    model.save()
    words = "vision true the provider's list"
    assert source(admin_client, model, "vision").startswith(words)
    change(admin_client, model, "vision", value="false")
    assert "false overridden by staff" in source(admin_client, model, "vision")
    change(admin_client, model, "vision", reset="")
    assert source(admin_client, model, "vision").startswith("vision false probed")


def test_staff_let_the_findings_of_one_model_be_forgotten(admin_client: Client, model):
    answer = admin_client.post(address(model), {"forget": ""}, follow=True)
    assert "What probes found of gpt-5.1 was forgotten." in answer.text
    assert "bundled data" in source(admin_client, model, "vision")
    assert "Forget what probes found" not in admin_client.get(address(model)).text


def test_staff_let_the_findings_of_a_provider_be_forgotten(
    admin_client: Client, client: Client, model
):
    page = f"/admin/llm/provider/{model.provider_id}/probe/"
    assert "Forget what probes found of all models" in admin_client.get(page).text
    few = User.objects.create_user("few", is_staff=True)
    few.user_permissions.add(
        *Permission.objects.filter(codename__in=["change_provider", "view_provider"])
    )
    client.force_login(few)
    assert "Forget what probes found" not in client.get(page).text
    assert client.post(page, {"forget": ""}).status_code == 403
    answer = admin_client.post(page, {"forget": ""}, follow=True)
    assert "What probes found of 1 model was forgotten." in answer.text
    model.refresh_from_db()
    assert not model.findings
    assert "Forget what probes found" not in admin_client.get(page).text
