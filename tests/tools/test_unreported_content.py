"""Which models search before each answer, by their names."""

from __future__ import annotations

import pytest

from tools.hosted.unreported_content import may_search_by_name


@pytest.mark.parametrize(
    "model",
    [
        "sonar",
        "sonar-pro",
        "sonar-reasoning-pro",
        "perplexity/sonar-deep-research",
        "groq/compound",
        "groq/compound-mini",
        "compound-beta",
        "gpt-4o-search-preview",
        "gpt-4o-mini-search-preview-2025-03-11",
        "openai/gpt-5-search-api",
        "openai/gpt-4.1:online",
        "llama-3.1-sonar-small-128k-online",
    ],
)
def test_a_model_that_searches_is_known_by_its_name(model: str):
    assert may_search_by_name(model)


@pytest.mark.parametrize(
    "model",
    [
        "gpt-4.1",
        "llama-3.1-70b",
        "sonarqube-7b",
        "compounder",
        "research-preview",
        "",
        None,
    ],
)
def test_other_models_are_not(model: object):
    assert not may_search_by_name(model)
