"""The examples of docs/configuration.md are taken at their word."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from llm import router
from llm.http import request as outgoing
from llm.wire.request import Request
from project.config_file import load

DOCUMENT = Path(__file__).parents[3] / "docs" / "configuration.md"
EXAMPLES = re.findall(r"```toml\n(.*?)```", DOCUMENT.read_text("utf-8"), re.DOTALL)


@pytest.fixture
def azure(db: None) -> Any:
    (example,) = (text for text in EXAMPLES if "azure_openai" in text)
    secrets = {"MY_AZURE_KEY": "key", "MY_AZURE_SECRET": "secret"}
    load(tomllib.loads(example), secrets)
    return router.resolve


def url_of(route: Any) -> str:
    return outgoing.url_of(route.endpoint, Request(model=route.model, items=()))


def test_azures_own_address_is_found(azure):
    route = azure("gpt")
    assert url_of(route) == "https://NAME.openai.azure.com/openai/v1/responses"
    assert (route.endpoint.api_key, route.endpoint.credentials) == ("key", None)


def test_azures_old_address_is_called_with_a_token(azure):
    route = azure("gpt-4o")
    assert url_of(route) == (
        "https://OTHER.openai.azure.com/openai/deployments/gpt-4o/chat/completions"
        "?api-version=2024-10-21"
    )
    assert route.endpoint.credentials.tenant == "contoso.onmicrosoft.com"


@pytest.mark.parametrize("text", EXAMPLES)
def test_every_example_is_toml(text: str):
    assert tomllib.loads(text)
