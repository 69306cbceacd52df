from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from cryptography.fernet import Fernet
from django.contrib.auth.models import User
from django.core import serializers

from conversations.models.preset import Preset
from llm.demo.key import demo_key
from llm.models import ApiKey, LanguageModel, Provider
from project.environment.configuration_error import ConfigurationError
from project.environment.provider_accounts import Account
from project.startup.first_start import first_start
from tools.models import Tool

pytestmark = pytest.mark.django_db

DEMO = Account(kind="demo", model="demo")
OPENAI = Account(kind="openai", api_key="sk-first-0123456789", model="big")
GROQ = Account(kind="groq", api_key="gsk-0123456789abcdef", model="fast")


@pytest.fixture(autouse=True)
def plain_settings(settings: Any) -> None:
    settings.ACCOUNTS = [DEMO]
    settings.ADMIN_PASSWORD = ""
    settings.DISABLED_PROVIDERS = frozenset()
    settings.LLM_TEMPERATURE = None


def default_model() -> str:
    return str(LanguageModel.objects.get(is_default=True).name)


def demo_model() -> LanguageModel:
    return LanguageModel.objects.get(name="demo")


def all_rows() -> str:
    rows = [*User.objects.all(), *Provider.objects.all(), *LanguageModel.objects.all()]
    keys = [(key.secret.stored, key.hint, key.state) for key in ApiKey.objects.all()]
    return serializers.serialize("json", rows) + repr(keys)


# The admin


def test_the_printed_password_is_the_admins():
    login = first_start().login
    match = re.fullmatch(
        r"Sign in as admin with the password (\S+) \(shown once\)\.", login
    )
    assert match
    admin = User.objects.get(username="admin")
    assert admin.check_password(match[1])
    assert admin.is_superuser
    assert admin.is_staff


def test_no_two_servers_have_the_same_password():
    first = first_start().login
    User.objects.all().delete()
    assert first_start().login != first


def test_a_password_from_the_environment_is_used_and_not_printed(settings: Any):
    settings.ADMIN_PASSWORD = "corréct-horse-battery"
    login = first_start().login
    assert login == "Sign in as admin with the password of PARLEY_ADMIN_PASSWORD."
    assert User.objects.get(username="admin").check_password("corréct-horse-battery")


@pytest.mark.parametrize(
    ("password", "problem"),
    [
        ("x9!k", "too short"),
        ("password", "too common"),
        ("Parley2026!", "the name of this service"),
        ("admin1234", "similar to the username"),
    ],
)
def test_a_weak_password_stops_the_start_and_leaves_no_admin(
    settings: Any, password: str, problem: str
):
    settings.ADMIN_PASSWORD = password
    with pytest.raises(ConfigurationError) as stop:
        first_start()
    assert str(stop.value).startswith("PARLEY_ADMIN_PASSWORD: ")
    assert problem in str(stop.value)
    assert not User.objects.exists()


def test_an_admin_of_another_name_is_enough():
    User.objects.create_superuser("carol")
    assert first_start().login.startswith("Sign in as carol.")
    assert User.objects.count() == 1


def test_an_existing_user_named_admin_is_not_promoted():
    User.objects.create_user("admin")
    assert "createsuperuser" in first_start().login
    assert not User.objects.get(username="admin").is_superuser


# Tools, providers, keys, models


def test_a_tool_that_code_offers_gets_its_row_without_a_migration():
    Tool.objects.all().delete()
    first_start()
    assert Tool.objects.exists()


def test_the_demo_exists_and_describes_itself():
    assert first_start().has_model
    model = LanguageModel.objects.get()
    assert (model.name, model.label, model.is_default) == ("demo", "Demo (no AI)", True)
    assert ApiKey.objects.get().secret.reveal() == demo_key()


def test_the_demos_preset_has_the_tools_over_memories(settings: Any):
    first_start()
    preset = Preset.objects.get()
    assert (preset.name, str(preset.language_model)) == ("demo", str(demo_model()))
    tools = Tool.objects.filter(preset=preset)
    assert {"remember", "recall", "forget"} <= {tool.name for tool in tools}
    assert all(tool.enabled for tool in tools)
    preset.delete()
    first_start()
    assert not Preset.objects.exists()  # staff have deleted it


def test_an_upgrade_adds_no_preset(settings: Any):
    provider = Provider.objects.create(name="demo", kind="demo")
    provider.models.create(name="demo")
    first_start()
    assert not Preset.objects.exists()


def test_without_demo_and_keys_there_is_no_model(settings: Any):
    settings.ACCOUNTS = []
    assert not first_start().has_model


def test_a_second_start_changes_nothing(settings: Any):
    settings.ACCOUNTS = [OPENAI, DEMO]
    first_start()
    before = all_rows()
    first_start()
    assert all_rows() == before


def test_a_key_makes_provider_key_and_default_model(settings: Any):
    settings.ACCOUNTS = [OPENAI, DEMO]
    first_start()
    key = ApiKey.objects.get(provider__kind="openai")
    assert key.secret.reveal() == OPENAI.api_key
    assert key.label == "environment"
    assert key.hint.endswith("6789")
    assert default_model() == "big"


def test_a_key_that_comes_later_takes_the_default_from_the_demo(settings: Any):
    first_start()
    settings.ACCOUNTS = [OPENAI, DEMO]
    first_start()
    assert default_model() == "big"


def test_staff_may_choose_the_demo_all_the_same(settings: Any):
    settings.ACCOUNTS = [OPENAI, DEMO]
    first_start()
    LanguageModel.objects.get(name="demo").make_default()
    first_start()
    assert default_model() == "demo"


def test_an_explicit_default_of_the_environment_applies_at_every_start(
    settings: Any,
):
    settings.ACCOUNTS = [OPENAI, GROQ, DEMO]
    first_start()
    settings.ACCOUNTS = [replace(GROQ, is_default=True), OPENAI, DEMO]
    first_start()
    assert default_model() == "fast"


@pytest.mark.parametrize("is_default", [False, True])  # True: LLM_PROVIDER
def test_an_upgrade_that_prefers_another_model_changes_no_default(
    settings: Any, is_default: bool
):
    for usual in ("old", "new"):
        openai = replace(OPENAI, model=usual, is_default=is_default)
        settings.ACCOUNTS = [openai, DEMO]
        first_start()
    assert default_model() == "old"
    assert not LanguageModel.objects.filter(name="new").exists()


def test_an_upgrade_that_prefers_another_provider_changes_no_default(settings: Any):
    first, second = (
        replace(each, names_model=True, is_default=True) for each in (GROQ, OPENAI)
    )
    settings.ACCOUNTS = [first, second, DEMO]
    first_start()
    settings.ACCOUNTS = [second, first, DEMO]
    first_start()
    assert default_model() == first.model


def test_a_variable_that_names_another_model_changes_the_default(settings: Any):
    for name in ("one", "two"):
        named = replace(OPENAI, model=name, names_model=True, is_default=True)
        settings.ACCOUNTS = [named, DEMO]
        first_start()
        assert default_model() == name


def test_another_providers_named_model_leaves_the_first_ones_the_default(
    settings: Any,
):
    settings.ACCOUNTS = [OPENAI, DEMO]
    first_start()
    named = replace(GROQ, names_model=True, is_default=True)
    settings.ACCOUNTS = [OPENAI, named, DEMO]
    first_start()
    assert default_model() == OPENAI.model
    assert LanguageModel.objects.filter(name=named.model).exists()


def test_a_default_that_is_switched_off_gives_way(settings: Any):
    settings.ACCOUNTS = [OPENAI, DEMO]
    first_start()
    settings.ACCOUNTS, settings.DISABLED_PROVIDERS = [DEMO], frozenset({"openai"})
    first_start()
    assert default_model() == "demo"


def test_a_changed_key_replaces_the_stored_one_and_wakes_it(settings: Any):
    settings.ACCOUNTS = [OPENAI]
    first_start()
    ApiKey.objects.update(state=ApiKey.State.DISABLED, last_error="refused")
    settings.ACCOUNTS = [Account(kind="openai", api_key="sk-second", model="big")]
    first_start()
    key = ApiKey.objects.get()
    assert key.secret.reveal() == "sk-second"
    assert (key.state, key.last_error) == (ApiKey.State.ACTIVE, "")


def test_keys_of_the_staff_stay(settings: Any):
    settings.ACCOUNTS = [OPENAI]
    first_start()
    provider = Provider.objects.get()
    ApiKey.objects.create(provider=provider, label="team", secret="sk-team")
    first_start()
    assert provider.keys.get(label="team").secret.reveal() == "sk-team"


def test_a_key_of_a_lost_ring_is_written_again(settings: Any):
    settings.ACCOUNTS = [OPENAI]
    first_start()
    settings.ENCRYPTION_KEYS = [Fernet.generate_key().decode()]
    first_start()
    assert ApiKey.objects.get().secret.reveal() == OPENAI.api_key


def test_an_address_in_a_private_network_may_be_configured(settings: Any):
    settings.ACCOUNTS = [OPENAI]
    first_start()
    assert not Provider.objects.get().allow_private_network
    near = Account(kind="openai", api_key="k", model="big", base_url="http://box:1/v1")
    settings.ACCOUNTS = [near]
    first_start()
    provider = Provider.objects.get()
    assert provider.base_url == "http://box:1/v1"
    assert provider.allow_private_network


AZURE = Account(
    kind="azure_openai",
    api_key="azure-key-0123456789",
    model="gpt-5",
    base_url="https://me.openai.azure.com/openai/deployments/gpt-5",
    options={"api_version": "2024-10-21"},
)


def test_options_of_the_environment_are_merged_with_those_of_staff(settings: Any):
    settings.ACCOUNTS = [AZURE]
    first_start()
    provider = Provider.objects.get()
    assert provider.base_url == "https://me.openai.azure.com/openai"
    assert provider.options == {"deployment": "gpt-5", "api_version": "2024-10-21"}
    provider.full_clean()
    provider.options |= {"headers": {"X-Team": "a"}, "api_version": "preview"}
    provider.save()
    first_start()
    provider.refresh_from_db()
    assert provider.options["api_version"] == "2024-10-21"
    assert provider.options["headers"] == {"X-Team": "a"}
    before = all_rows()
    first_start()
    assert all_rows() == before


def test_a_provider_that_staff_switched_off_stays_off(settings: Any):
    settings.ACCOUNTS = [OPENAI]
    first_start()
    Provider.objects.update(enabled=False)
    first_start()
    assert not Provider.objects.get().enabled


def test_the_temperature_is_an_option_of_the_default_model(settings: Any):
    settings.ACCOUNTS, settings.LLM_TEMPERATURE = [OPENAI, DEMO], 0.2
    first_start()
    options = dict(LanguageModel.objects.values_list("name", "options"))
    assert options == {"big": {"temperature": 0.2}, "demo": {}}


# Keys, and addresses that staff have set


def test_a_key_of_the_environment_stays_with_the_address_it_was_for(settings: Any):
    settings.ACCOUNTS = [OPENAI]
    first_start()
    provider = Provider.objects.get()
    provider.base_url = "https://thief.example/v1"
    provider.save()
    for api_key in ("sk-first-0123456789", "sk-second-012345678"):
        settings.ACCOUNTS = [replace(OPENAI, api_key=api_key)]
        first_start()
        assert not ApiKey.objects.get().is_current_key(api_key)
    provider.base_url = ""
    provider.save()
    assert ApiKey.objects.get().is_current_key("sk-second-012345678")


def test_a_new_key_is_sent_only_to_the_address_of_the_environment(settings: Any):
    Provider.objects.create(
        name="openai", kind="openai", base_url="https://thief.example/v1"
    )
    settings.ACCOUNTS = [OPENAI]
    first_start()
    assert not ApiKey.objects.get().is_current_key(OPENAI.api_key)
    settings.ACCOUNTS = [replace(OPENAI, base_url="https://proxy.example/v1")]
    first_start()
    assert ApiKey.objects.get().is_current_key(OPENAI.api_key)
    assert ApiKey.objects.get().entered_for == "https://proxy.example:443"


def test_a_new_key_goes_where_staff_entered_one_last(settings: Any):
    settings.ACCOUNTS = [OPENAI]
    first_start()
    provider = Provider.objects.get()
    provider.base_url = "https://proxy.example/v1"
    provider.save()
    key = ApiKey.objects.get()
    key.secret = OPENAI.api_key
    key.save()
    settings.ACCOUNTS = [replace(OPENAI, api_key="sk-second-012345678")]
    first_start()
    assert ApiKey.objects.get().is_current_key("sk-second-012345678")
