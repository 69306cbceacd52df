"""Which of the models that a host may choose has answered."""

from __future__ import annotations

import pytest

from llm.models import LanguageModel, Provider
from llm.pricing.answering_model import find_model
from llm.router import route_by


def found(name: str, *known: str) -> str | None:
    provider = Provider(name="One", kind="openai")
    routes = [route_by(LanguageModel(provider=provider, name=n), None) for n in known]
    route = find_model(name, routes)
    return route and route.model


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("gpt-5-2025-08-07", "gpt-5"),
        ("gpt-4-0613", "gpt-4"),
        ("claude-sonnet-4-20250514", "claude-sonnet-4"),
        ("gemini-2.5-flash-preview-05-20", "gemini-2.5-flash"),
        ("gemini-2.0-flash-001", "gemini-2.0-flash"),
        ("mistral-small-latest", "mistral-small"),
        ("claude-3-5-sonnet-20241022-v2", "claude-3-5-sonnet"),
        ("grok-3-beta", "grok-3"),
        ("deepseek-chat-v3-0324", "deepseek-chat"),
        ("deepseek/deepseek-r1:free", "deepseek/deepseek-r1"),
        ("deepseek/deepseek-r1", "deepseek/deepseek-r1:free"),
        ("claude-sonnet-4@20250514", "claude-sonnet-4"),
    ],
)
def test_a_version_is_its_model(name: str, known: str):
    assert found(name, known) == known


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("gpt-5-pro", "gpt-5"),
        ("gpt-5-pro-2025-10-06", "gpt-5"),
        ("gpt-4-32k", "gpt-4"),
        ("llama-3-70", "llama-3"),
        ("llama-3-405", "llama-3"),
        ("deepseek-chat-v3", "deepseek-chat"),
        ("grok-3-mini-beta", "grok-3"),
        ("claude-opus-4-1", "claude-opus-4"),
        ("gpt-5", "gpt-5-pro"),
    ],
)
def test_a_sibling_has_a_price_of_its_own(name: str, known: str):
    assert found(name, known) is None
