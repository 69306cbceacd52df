"""A person's limit counts for dictations."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from django.test import Client

from conversations.models import UsageLimit
from tests.conversations.reading.speech_host import SpeechHost
from tests.conversations.reading.test_dictation import (
    ada,
    error_of,
    host,
    model,
    send,
    web,
)

__all__ = ["ada", "host", "model", "web"]

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize(
    "amounts", [{"requests": 1}, {"tokens": 20}, {"cost": Decimal("0.0001")}]
)
def test_a_limit_counts_and_refuses_dictations(
    web: Client, ada: Any, host: SpeechHost, amounts: dict[str, Any]
):
    """What one takes is known afterwards only, so the next one is refused."""
    UsageLimit.objects.create(user=ada, period="month", **amounts)
    assert send(web).status_code == 200
    refused = send(web)
    assert refused.status_code == 429, refused.content
    assert error_of(refused)["code"] == "insufficient_quota"
    assert len(host.forms) == 1
