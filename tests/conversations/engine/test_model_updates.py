"""Models taken over from providers' lists, with what the provider would answer in
place of the call."""

from __future__ import annotations

import logging
from collections import Counter

import pytest

from conversations.engine.maintenance import model_sync as model_updates
from conversations.engine.maintenance.model_sync import sync_models
from llm.errors import ProviderDown
from llm.models import LanguageModel, Provider
from llm.sync import model_list
from llm.wire.model_lists import ModelInfo

pytestmark = pytest.mark.django_db


@pytest.fixture
def listed(monkeypatch):
    """By the provider's name: what its list has, or why it cannot be had."""
    lists: dict[str, list[ModelInfo] | Exception] = {}

    def respond(provider):
        answer = lists[provider.name]
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(model_list, "_ask", respond)
    return lists


def a_provider(name: str, **fields) -> Provider:
    return Provider.objects.create(name=name, kind="groq", **fields)


def synced() -> Counter[str]:
    return sum(sync_models(), Counter())


def test_new_models_are_added_switched_off(listed):
    a_provider("One")
    listed["One"] = [ModelInfo(id="new-1")]
    assert synced() == Counter(added=1)
    assert not LanguageModel.objects.get(name="new-1").enabled
    assert synced() == Counter()


def test_a_delisted_model_is_reported_and_remains(listed, caplog):
    deleted = LanguageModel.objects.create(provider=a_provider("One"), name="old-1")
    listed["One"] = []
    with caplog.at_level(logging.WARNING, model_updates.__name__):
        assert synced() == Counter()
    deleted.refresh_from_db()
    assert deleted.enabled
    assert "One does not list 1 models" in caplog.text


def test_an_unreachable_provider_stops_no_other(listed):
    a_provider("One")
    a_provider("Two")
    a_provider("Off", enabled=False)  # it gets no request
    listed["One"] = ProviderDown()
    listed["Two"] = [ModelInfo(id="new-2")]
    assert synced() == Counter(added=1)
