from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from llm.provider import Option, Provider
from llm.providers import all_providers
from project.environment.configuration_error import ConfigurationError
from project.environment.provider_accounts import (
    Account,
    read_accounts,
    read_disabled_providers,
)
from project.environment.variables import Environment

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
        provider(
            "tower",
            default_model="",
            needs_base_url=True,
            options=[
                Option(
                    name="year", wanted="a year", pattern=r"\d{4}", env="TOWER_YEAR"
                ),
                Option(name="house", wanted="a house", env="TOWER_HOUSE"),
                Option(name="floor", wanted="a floor", env="TOWER_FLOOR"),
                Option(name="colour", wanted="a colour"),
            ],
            secret_env="TOWER_SECRET",
            secret_options=["house", "floor"],
        ),
    ]
}
DEMO = Account(kind="demo", model="demo-1")
TOWER = {"TOWER_API_BASE": "https://tower.example", "TOWER_MODEL": "m"}


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Read:
    def read(
        providers: dict[str, Provider] = PROVIDERS, **variables: str
    ) -> list[Account]:
        base = {"PARLEY_DATA": str(tmp_path), "PARLEY_READ_DOTENV": "false"}
        monkeypatch.setattr(os, "environ", {**base, **variables})
        env = Environment(tmp_path)
        return read_accounts(env, providers, read_disabled_providers(env, providers))

    return read


def test_nothing_named_leaves_the_demo(read: Read):
    assert read() == [DEMO]


def test_the_demo_can_be_switched_off(read: Read):
    assert read(ENABLE_DEMO="false") == []


def test_a_key_makes_an_account_with_the_usual_model(read: Read):
    account = Account(kind="openai", api_key="sk-1", model="openai-1")
    assert read(OPENAI_API_KEY="sk-1") == [account, DEMO]


def test_a_named_model_is_the_default(read: Read):
    account = Account(
        kind="openai", api_key="sk-1", model="big", names_model=True, is_default=True
    )
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


@pytest.mark.parametrize(
    ("variables", "kinds"),
    [
        ({}, ["openai", "acme", "demo"]),
        ({"ACME_MODEL": "x"}, ["openai", "acme", "demo"]),
        ({"OPENAI_MODEL": "x"}, ["openai", "acme", "demo"]),
        ({"LLM_PROVIDER": "acme"}, ["acme", "openai", "demo"]),
        ({"LLM_PROVIDER": "demo"}, ["demo", "openai", "acme"]),
        ({"ENABLE_OPENAI": "false"}, ["acme", "demo"]),
        ({"ENABLE_OPENAI": "false", "LOCAL_BOX_MODEL": "x"}, ["local-box", "acme"]),
    ],
)
def test_of_several_keys_openais_comes_first(
    read: Read, variables: dict[str, str], kinds: list[str]
):
    found = read(ACME_API_KEY="a", OPENAI_API_KEY="o", **variables)
    assert [each.kind for each in found][: len(kinds)] == kinds


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


def test_options_of_the_environment_go_along(read: Read):
    first, *_ = read(TOWER_API_KEY="k", TOWER_YEAR=" 2024 ", **TOWER)
    assert first == Account(
        kind="tower",
        api_key="k",
        model="m",
        base_url="https://tower.example",
        options={"year": "2024"},
        names_model=True,
        is_default=True,
    )


def test_a_secret_with_its_options_replaces_the_key(read: Read):
    client = {"TOWER_SECRET": "s", "TOWER_HOUSE": "h", "TOWER_FLOOR": "f"}
    first, *_ = read(**client, **TOWER)
    assert (first.api_key, first.options) == ("s", {"house": "h", "floor": "f"})


def test_a_key_that_is_a_json_file_is_read_as_one_word(read: Read):
    first, *_ = read(OPENAI_API_KEY='{"private_key": "a b"}')
    assert first.api_key == '{"private_key":"a\\u0020b"}'


AZURE = {
    "AZURE_OPENAI_BASE_URL": "https://me.openai.azure.com",
    "AZURE_OPENAI_DEPLOYMENT": "gpt-5",
}


@pytest.mark.parametrize(
    ("variables", "kind"),
    [
        ({"ANTHROPIC_API_KEY": "k"}, "anthropic"),
        ({"ANTHROPIC_API_KEY": "k", "ANTHROPIC_MODEL": "m"}, "anthropic"),
        ({"GEMINI_API_KEY": "k", "GEMINI_MODEL": "m"}, "gemini"),
        ({"XAI_API_KEY": "k"}, "xai"),
        ({"GROQ_API_KEY": "k"}, "groq"),
        ({"OPENAI_API_KEY": "k", "LLM_PROVIDER": "openai"}, "openai"),
        ({"AZURE_OPENAI_KEY": "k", **AZURE}, "azure_openai"),
        (
            {
                "AZURE_OPENAI_KEY": "k",
                "AZURE_OPENAI_API_VERSION": "2024-10-21",
                "LLM_PROVIDER": "azure_openai",
                **AZURE,
            },
            "azure_openai",
        ),
        (
            {
                "AZURE_OPENAI_TENANT_ID": "t",
                "AZURE_OPENAI_CLIENT_ID": "c",
                "AZURE_OPENAI_CLIENT_SECRET": "k",
                **AZURE,
            },
            "azure_openai",
        ),
    ],
)
def test_each_complete_set_of_a_real_provider_makes_an_account(
    read: Read, variables: dict[str, str], kind: str
):
    first, *_ = read(providers=all_providers(), **variables)
    assert (first.kind, first.api_key) == (kind, "k")
    assert first.model


@pytest.mark.parametrize(
    ("variables", "missing"),
    [
        (
            {"AZURE_OPENAI_KEY": "k"},
            ["AZURE_OPENAI_BASE_URL", "AZURE_OPENAI_DEPLOYMENT"],
        ),
        (AZURE, ["AZURE_OPENAI_KEY"]),
        (
            {"AZURE_OPENAI_CLIENT_SECRET": "k", **AZURE},
            ["AZURE_OPENAI_TENANT_ID", "AZURE_OPENAI_CLIENT_ID"],
        ),
        ({"LLM_PROVIDER": "anthropic"}, ["ANTHROPIC_API_KEY"]),
        ({"GEMINI_MODEL": "m"}, ["GEMINI_API_KEY"]),
    ],
)
def test_each_incomplete_set_of_a_real_provider_names_what_is_missing(
    read: Read, variables: dict[str, str], missing: list[str]
):
    with pytest.raises(ConfigurationError) as stop:
        read(providers=all_providers(), **variables)
    assert str(stop.value).startswith(f"{', '.join(missing)}: ")


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
            {"LLM_PROVIDER": "tower"},
            "TOWER_API_KEY, TOWER_API_BASE, TOWER_MODEL: LLM_PROVIDER=tower needs"
            " them; set them in the environment or .env.",
        ),
        (
            {"TOWER_YEAR": "2024"},
            "TOWER_API_KEY, TOWER_API_BASE, TOWER_MODEL: TOWER_YEAR needs them; set"
            " them in the environment or .env.",
        ),
        (
            {"TOWER_SECRET": "s", **TOWER},
            "TOWER_HOUSE, TOWER_FLOOR: TOWER_SECRET needs them; set them in the"
            " environment or .env.",
        ),
        (
            {"TOWER_HOUSE": "h", "TOWER_FLOOR": "f", **TOWER},
            "TOWER_SECRET: TOWER_MODEL needs it; set it in the environment or .env.",
        ),
        (
            {"TOWER_API_KEY": "k", "TOWER_SECRET": "s", **TOWER},
            "TOWER_SECRET: TOWER_API_KEY is set as well; remove one of them.",
        ),
        (
            {"TOWER_YEAR": "24", "TOWER_API_KEY": "k", **TOWER},
            "TOWER_YEAR: '24' is not a year.",
        ),
        (
            {"LLM_PROVIDER": "openai", "OPENAI_API_KEY": "o", "ENABLE_OPENAI": "0"},
            "ENABLE_OPENAI: LLM_PROVIDER=openai needs this provider; remove the"
            " variable or set it to true.",
        ),
        (
            {"LLM_PROVIDER": "demo", "ENABLE_DEMO": "false"},
            "ENABLE_DEMO: LLM_PROVIDER=demo needs this provider; remove the"
            " variable or set it to true.",
        ),
        (
            {"LLM_PROVIDER": "skynet"},
            "LLM_PROVIDER: 'skynet' is not one of"
            " acme, bare, demo, local-box, openai, own-host, tower.",
        ),
    ],
)
def test_an_incomplete_account_stops_the_start_and_names_what_is_missing(
    read: Read, variables: dict[str, str], line: str
):
    with pytest.raises(ConfigurationError) as stop:
        read(**variables)
    assert str(stop.value) == line


def test_an_account_does_not_show_its_key(read: Read):
    assert "sk-planted" not in repr(read(OPENAI_API_KEY="sk-planted"))
