"""What staff of few rights get of a provider's key: nothing."""

from __future__ import annotations

import html
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client

from llm.db.encrypted_field import encrypt
from llm.models import ApiKey, Provider
from tests.llm.db.test_encrypted_field import put
from tests.llm.models.test_admin import page, provider_form, shown_messages
from tests.recording import Recording

pytestmark = pytest.mark.django_db
PLANTED = "gsk-planted-0123456789-wxyz"


@pytest.fixture
def provider() -> Provider:
    provider = Provider.objects.create(name="Groq", kind="groq")
    provider.keys.create(secret=PLANTED)
    provider.models.create(name="llama-3")
    return provider


def staff(client: Client, *rights: str) -> Client:
    user = User.objects.create_user("few", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=rights))
    client.force_login(user)
    return client


def moved(provider: Provider, url: str, **fields: Any) -> dict[str, Any]:
    """The form of a user who sees no keys, and tests the connection."""
    form = provider_form(base_url=url, allow_private_network="on", _test="1", **fields)
    return {name: value for name, value in form.items() if not name.startswith("keys")}


@pytest.mark.parametrize("form", ["f1", "f2"])
def test_a_provider_that_is_pointed_elsewhere_sends_no_key(
    client: Client, provider: Provider, thief: Recording, form: str
):
    if form == "f1":
        put(provider.keys.get(), encrypt(PLANTED))
    few = staff(client, "change_provider", "view_provider")
    response = few.post(
        page("provider_change", provider.pk),
        moved(provider, f"{thief.url}/v1"),
        follow=True,
    )
    provider.refresh_from_db()
    assert provider.base_url == f"{thief.url}/v1"
    messages = " ".join(shown_messages(response))
    assert "entered for https://api.groq.com:443" in messages
    assert f"is now {thief.url}" in messages
    assert "is not sent; enter it again" in messages  # what the test found
    few.post(
        page("provider_changelist"),
        {"action": "test_connection", "_selected_action": provider.pk},
    )
    assert thief.received == []
    listed = html.unescape(few.get(page("provider_changelist")).text)
    assert "Enter it again to send it to the new address" in listed


def test_pointed_back_it_works_as_before(
    client: Client, provider: Provider, thief: Recording
):
    few = staff(client, "change_provider", "view_provider")
    for url in (f"{thief.url}/v1", ""):
        few.post(
            page("provider_change", provider.pk), moved(provider, url) | {"_test": ""}
        )
    assert ApiKey.objects.get().is_current_key(PLANTED)


def test_a_key_that_is_entered_again_goes_to_the_new_address(
    client: Client, provider: Provider, thief: Recording
):
    provider.base_url, provider.allow_private_network = f"{thief.url}/v1", True
    provider.save()
    client = staff(client, "change_provider", "change_apikey", "view_apikey")
    key = provider.keys.get()
    assert "Not sent" in html.unescape(client.get(page("apikey_changelist")).text)
    fields = {"provider": provider.pk, "label": "default", "secret": PLANTED}
    form_data = {**fields, "state": "active", "weight": 1}
    assert client.post(page("apikey_change", key.pk), form_data).status_code == 302
    client.post(
        page("provider_changelist"),
        {"action": "test_connection", "_selected_action": provider.pk},
    )
    assert thief.has(PLANTED)
    assert "Not sent" not in html.unescape(client.get(page("apikey_changelist")).text)


@pytest.mark.slow
@pytest.mark.smoke
def test_the_right_to_change_keys_reveals_none_at_another_address(
    client: Client, provider: Provider, thief: Recording
):
    """It lets people write keys; no action and no form sends on what is stored."""
    few = staff(client, "change_provider", "change_apikey", "view_apikey")
    provider.base_url, provider.allow_private_network = f"{thief.url}/v1", True
    provider.save()
    key = provider.keys.get()
    listed = few.get(page("apikey_changelist"))
    actions = [
        name for name, _ in listed.context["action_form"].fields["action"].choices
    ]
    assert "enable" in actions
    for action in filter(None, [*actions, "confirm_address"]):
        form_data = {"action": action, "_selected_action": key.pk}
        few.post(page("apikey_changelist"), form_data)
    fields = {"provider": provider.pk, "label": "default", "secret": ""}
    form_data = {**fields, "state": "active", "weight": 1}
    response = few.post(page("apikey_change", key.pk), form_data, follow=True)
    assert "Enter it again to send it to the new address" in " ".join(
        shown_messages(response)
    )
    few.post(
        page("provider_changelist"),
        {"action": "test_connection", "_selected_action": provider.pk},
    )
    assert thief.received == []
    assert not ApiKey.objects.get().is_current_key(PLANTED)
