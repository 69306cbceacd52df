from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from llm.provider import Provider
from project.accounts import Account, accounts, disabled_providers
from project.environment import ConfigurationError, Environment

Read = Callable[..., list[Account]]


def provider(name: str, **changes: object) -> Provider:
    word = name.upper().replace("-", "_")
    known = {
        "name": name,
        "label": name.title(),
        "base_url": f"https://{name}.example/v1",
        "codecs": {},
        "key_env": f"{word}_API_KEY",
        "model_env": f"{word}_MODEL",
        "base_url_env": f"{word}_API_BASE",
        "default_model": f"{name}-1",
    }
    return Provider(**{**known, **changes})


PROVIDERS = {
    each.name: each
    for each in [
        provider("acme"),
        provider("bare", default_model=""),
        provider("demo", needs_key=False, key_env="", model_env="", base_url_env=""),
        provider("local-box", needs_key=False, default_model=""),
        provider("openai"),
        provider("own-host", needs_key=False, needs_base_url=True),
    ]
}
DEMO = Account(kind="demo", model="demo-1")


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Read:
    def read(**variables: str) -> list[Account]:
        base = {"PARLEY_DATA": str(tmp_path), "PARLEY_READ_DOTENV": "false"}
        monkeypatch.setattr(os, "environ", {**base, **variables})
        env = Environment(tmp_path)
        return accounts(env, PROVIDERS, disabled_providers(env, PROVIDERS))

    return read


def test_nothing_named_leaves_the_demo(read: Read):
    assert read() == [DEMO]


def test_the_demo_can_be_switched_off(read: Read):
    assert read(ENABLE_DEMO="false") == []


def test_a_key_makes_an_account_with_the_usual_model(read: Read):
    account = Account(kind="openai", api_key="sk-1", model="openai-1")
    assert read(OPENAI_API_KEY="sk-1") == [account, DEMO]


def test_a_named_model_is_the_default(read: Read):
    account = Account(kind="openai", api_key="sk-1", model="big", is_default=True)
    assert read(OPENAI_API_KEY="sk-1", OPENAI_MODEL="big") == [account, DEMO]


def test_another_address_is_taken_over(read: Read):
    first, *_ = read(OPENAI_API_KEY="sk-1", OPENAI_API_BASE="http://proxy:4000/v1")
    assert first.base_url == "http://proxy:4000/v1"


def test_the_chosen_provider_comes_first_and_is_the_default(read: Read):
    found = read(ACME_API_KEY="a", OPENAI_API_KEY="o", LLM_PROVIDER="OpenAI")
    assert [(each.kind, each.is_default) for each in found] == [
        ("openai", True),
        ("acme", False),
        ("demo", False),
    ]


def test_a_named_model_gives_way_to_the_chosen_provider(read: Read):
    keys = {"ACME_API_KEY": "a", "OPENAI_API_KEY": "o"}
    found = read(**keys, ACME_MODEL="x", LLM_PROVIDER="openai")
    assert [each.kind for each in found if each.is_default] == ["openai"]


def test_the_demo_can_be_chosen_before_others(read: Read):
    first, second = read(OPENAI_API_KEY="o", LLM_PROVIDER="demo")
    assert (first.kind, first.is_default) == ("demo", True)
    assert not second.is_default


def test_a_provider_that_is_switched_off_is_passed_over(read: Read):
    assert read(OPENAI_API_KEY="o", ENABLE_OPENAI="false") == [DEMO]


def test_a_dash_in_a_kind_is_an_underscore_in_its_switch(read: Read):
    values = {"LOCAL_BOX_MODEL": "llama"}
    assert [each.kind for each in read(**values)] == ["local-box", "demo"]
    assert read(**values, ENABLE_LOCAL_BOX="false") == [DEMO]


@pytest.mark.parametrize(
    ("variables", "line"),
    [
        (
            {"LLM_PROVIDER": "openai"},
            "OPENAI_API_KEY: LLM_PROVIDER=openai needs it;"
            " set it in the environment or .env.",
        ),
        (
            {"OPENAI_MODEL": "big"},
            "OPENAI_API_KEY: OPENAI_MODEL needs it; set it in the environment or .env.",
        ),
        (
            {"OPENAI_API_BASE": "http://proxy"},
            "OPENAI_API_KEY: OPENAI_API_BASE needs it;"
            " set it in the environment or .env.",
        ),
        (
            {"BARE_API_KEY": "b"},
            "BARE_MODEL: BARE_API_KEY needs it; set it in the environment or .env.",
        ),
        (
            {"LLM_PROVIDER": "local-box"},
            "LOCAL_BOX_MODEL: LLM_PROVIDER=local-box needs it;"
            " set it in the environment or .env.",
        ),
        (
            {"OWN_HOST_MODEL": "m"},
            "OWN_HOST_API_BASE: OWN_HOST_MODEL needs it;"
            " set it in the environment or .env.",
        ),
        (
            {"LLM_PROVIDER": "openai", "OPENAI_API_KEY": "o", "ENABLE_OPENAI": "0"},
            "ENABLE_OPENAI: LLM_PROVIDER=openai needs it; remove it or set true.",
        ),
        (
            {"LLM_PROVIDER": "demo", "ENABLE_DEMO": "false"},
            "ENABLE_DEMO: LLM_PROVIDER=demo needs it; remove it or set true.",
        ),
        (
            {"LLM_PROVIDER": "skynet"},
            "LLM_PROVIDER: 'skynet' is not one of"
            " acme, bare, demo, local-box, openai, own-host.",
        ),
    ],
)
def test_an_incomplete_set_stops_and_says_what_is_missing(
    read: Read, variables: dict[str, str], line: str
):
    with pytest.raises(ConfigurationError) as stop:
        read(**variables)
    assert str(stop.value) == line


def test_an_account_does_not_show_its_key(read: Read):
    assert "sk-planted" not in repr(read(OPENAI_API_KEY="sk-planted"))
