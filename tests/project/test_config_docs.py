"""The examples of docs/configuration.md are taken at their word."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from llm import router
from llm.wire.request import Request
from project.config_file import load

DOCUMENT = Path(__file__).parents[2] / "docs" / "configuration.md"
EXAMPLES = re.findall(r"```toml\n(.*?)```", DOCUMENT.read_text("utf-8"), re.DOTALL)


@pytest.fixture
def azure(db: None) -> Any:
    (example,) = (text for text in EXAMPLES if "azure_openai" in text)
    secrets = {"MY_AZURE_KEY": "key", "MY_AZURE_SECRET": "secret"}
    load(tomllib.loads(example), secrets)
    return router.resolve


def asked_at(route: Any) -> str:
    return str(route.endpoint.url(Request(model=route.model, items=())))


def test_azures_own_address_is_found(azure):
    route = azure("gpt")
    assert asked_at(route) == "https://NAME.openai.azure.com/openai/v1/responses"
    assert (route.endpoint.api_key, route.endpoint.credentials) == ("key", None)


def test_azures_old_address_is_asked_with_a_token(azure):
    route = azure("gpt-4o")
    assert asked_at(route) == (
        "https://OTHER.openai.azure.com/openai/deployments/gpt-4o/chat/completions"
        "?api-version=2024-10-21"
    )
    assert route.endpoint.credentials.tenant == "contoso.onmicrosoft.com"


@pytest.mark.parametrize("text", EXAMPLES)
def test_every_example_is_toml(text: str):
    assert tomllib.loads(text)
