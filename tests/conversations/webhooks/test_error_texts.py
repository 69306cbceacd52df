"""Why a delivery failed, in the language of those who look at it."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils.translation import override

from conversations.engine.webhooks.sending import judge_answer
from conversations.models import WebhookEndpoint
from conversations.models.webhooks.error_texts import translate_delivery_error
from tools.http.exchange import FetchedResponse


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (503, "Der Empfänger hat mit 503 geantwortet."),
        (302, "Der Empfänger leitet um (302); geben Sie seine endgültige Adresse ein."),
    ],
)
def test_an_error_is_stored_in_english_and_shown_in_ones_language(
    status: int, text: str
) -> None:
    answer = FetchedResponse(status=status, headers={}, body=b"")
    stored = judge_answer(answer).error
    assert stored.startswith("The receiver")
    with override("de"):
        assert translate_delivery_error(stored) == text


def test_what_the_network_says_stays_as_it_is() -> None:
    with override("de"):
        assert translate_delivery_error("No route to host.") == "No route to host."


@pytest.mark.django_db
def test_pages_of_staff_and_of_the_owner_translate_it(admin_client: Client) -> None:
    row = WebhookEndpoint(
        owner=User.objects.get(username="admin"),
        name="Script",
        url="https://hooks.example.org/",
        events=["response.completed"],
        last_error="The receiver answered 503.",
        disabled_reason="The receiver wants no more events (410 Gone).",
        is_enabled=False,
    )
    row.renew_secret()
    for page in (
        "/admin/conversations/webhookendpoint/",
        f"/admin/conversations/webhookendpoint/{row.pk}/change/",
        f"/settings/webhooks/{row.pk}/",
    ):
        answer = admin_client.get(page, headers={"accept-language": "de"})
        content = answer.content.decode()
        assert "Der Empfänger hat mit 503 geantwortet." in content
        assert "Der Empfänger möchte keine Ereignisse mehr (410 Gone)." in content
        assert "The receiver" not in content
