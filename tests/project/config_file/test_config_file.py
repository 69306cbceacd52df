from __future__ import annotations

import io
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import tomli_w
from django.contrib.auth.models import Group
from django.core.management import CommandError, call_command
from django.forms.models import model_to_dict
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from llm.models import ApiKey, LanguageModel, Provider
from project.config_file import ConfigError, dump, load
from project.config_file.stored_rows import StoredRows
from project.config_file.tables import (
    IDENTITY_PROVIDER,
    KEY,
    MODEL,
    PRESET,
    SOURCE,
    TOOL,
)
from tools.models import DeclaredTool, HttpTool, Tool

pytestmark = pytest.mark.django_db

FILE = """
[[providers]]
name = "Groq EU"
kind = "groq"
options = {headers = {X-Team = "a"}}

  [[providers.keys]]
  secret = "env:GROQ_KEY"
  weight = 3

  [[providers.models]]
  name = "openai/gpt-oss-120b"
  alias = "oss"
  is_default = true
  capabilities = {tools = true, vision = false}
  context_window = 131072
  prices = {input = 0.15, output = 0.6}
  groups = ["research", "support"]
  fallbacks = ["Local/llama"]

[[providers]]
name = "Local"
kind = "ollama"
base_url = "http://ollama:11434/v1"
allow_private_network = true
enabled = false

  [[providers.models]]
  name = "llama"
  label = "Llama, ours"
  options = {temperature = 0.5}

[[tools]]
name = "weather"
description = "Two lines\\nof \\"words\\"."
timeout = 2.5
replay = "safe"
groups = ["support"]
"""
ENVIRONMENT = {"GROQ_KEY": "gsk-planted-0123456789"}


@pytest.fixture(autouse=True)
def _no_tools(db) -> None:
    """A migrated database has a row for each tool that comes with the code, and for
    each kind of tool that requests can bring."""
    Tool.objects.all().delete()
    DeclaredTool.objects.all().delete()


def document(text: str = FILE) -> dict:
    return tomllib.loads(text)


def state() -> list:
    """All rows that a file can describe."""
    rows = [
        *Provider.objects.order_by("name"),
        *LanguageModel.objects.order_by("provider__name", "name"),
        *Tool.objects.order_by("name"),
    ]
    links = [
        sorted(str(each) for each in getattr(row, name).all())
        for row in rows
        for name in ("groups", "fallbacks")
        if hasattr(row, name)
    ]
    keys = [
        (key.provider.name, key.label, key.hint, key.state, key.weight)
        for key in ApiKey.objects.order_by("provider__name", "label")
    ]
    plain = [
        {name: value for name, value in model_to_dict(row).items() if name != "id"}
        for row in rows
    ]
    for fields in plain:
        for name in ("groups", "fallbacks", "provider"):
            fields.pop(name, None)
    return [plain, links, keys, sorted(Group.objects.values_list("name", flat=True))]


def test_a_problem_repeats_only_the_beginning_of_a_long_name():
    name, field = "p" * 100_000, "f" * 100_000
    with pytest.raises(ConfigError) as caught:
        load({"providers": [{"name": name, field: 1}]}, {})
    [problem] = caught.value.problems
    assert problem.startswith("providers[ppp")
    assert "known: name, kind" in problem
    assert len(str(caught.value)) < 1_000


# The laws


@pytest.mark.parametrize("names", ["cab", "bca", "abc"])
def test_fallbacks_keep_their_order_in_a_file(names: str):
    load(document(), ENVIRONMENT)
    model = LanguageModel.objects.get(alias="oss")
    local = Provider.objects.get(name="Local")
    for name in "bac":
        local.models.create(name=name)
    changed = document()
    wanted = [f"Local/{name}" for name in names]
    changed["providers"][0]["models"][0]["fallbacks"] = wanted
    load(changed, ENVIRONMENT)
    dumped = {each["name"]: each for each in dump()["providers"]}
    assert dumped["Groq EU"]["models"][0]["fallbacks"] == wanted
    changed["providers"][0]["models"][0]["fallbacks"] = wanted[::-1]
    report = load(changed, ENVIRONMENT)
    assert [each for each in report.changes if "fallbacks" in each] == [
        "providers[Groq EU].models[openai/gpt-oss-120b].fallbacks: now "
        + ", ".join(wanted[::-1])
    ]
    assert load(changed, ENVIRONMENT).changes == []
    rows = local.models.in_bulk(model.fallback_keys)
    assert [rows[key].name for key in model.fallback_keys] == list(names[::-1])


def test_a_file_makes_the_rows_that_it_names():
    report = load(document(), ENVIRONMENT)
    assert report.changes == [
        "providers[Groq EU]: created",
        "providers[Groq EU].keys[default]: created",
        "providers[Groq EU].models[openai/gpt-oss-120b]: created",
        "providers[Local]: created",
        "providers[Local].models[llama]: created",
        "tools[weather]: created",
        "group 'research': created without members",
        "group 'support': created without members",
        "providers[Groq EU].models[openai/gpt-oss-120b].groups: now research, support",
        "providers[Groq EU].models[openai/gpt-oss-120b].fallbacks: now Local/llama",
        "tools[weather].groups: now support",
    ]
    model = LanguageModel.objects.get(alias="oss")
    assert model.is_default
    assert model.capabilities == {"tools": True, "vision": False}
    assert model.context_window == 131072
    assert [str(each) for each in model.fallbacks.all()] == ["Llama, ours"]
    key = ApiKey.objects.get()
    assert (key.label, key.weight, key.hint) == ("default", 3, "gsk…6789")
    assert key.is_current_key(ENVIRONMENT["GROQ_KEY"])
    tool = Tool.objects.get()
    assert (tool.timeout, tool.replay) == (2.5, "safe")


def test_loading_again_does_nothing():
    load(document(), ENVIRONMENT)
    before = state()
    report = load(document(), ENVIRONMENT)
    assert (report.changes, report.notes) == ([], [])
    assert state() == before


def test_loading_what_was_dumped_does_nothing():
    load(document(), ENVIRONMENT)
    before = state()
    report = load(tomllib.loads(tomli_w.dumps(dump())), {})
    assert report.changes == []
    assert report.notes == [
        "providers[Groq EU].keys[default].secret: GROQ_EU_DEFAULT_KEY is not set;"
        " the stored key stays."
    ]
    assert state() == before


def test_a_dumped_configuration_creates_the_same_rows_elsewhere():
    Group.objects.all().delete()  # those that Parley ships
    load(document(), ENVIRONMENT)
    before, dumped = state(), dump()
    for model in (Provider, Tool, Group):
        model.objects.all().delete()
    load(dumped, {"GROQ_EU_DEFAULT_KEY": ENVIRONMENT["GROQ_KEY"]})
    assert state() == before
    assert dump() == dumped


characters = st.characters(exclude_categories=["Cs"], exclude_characters="\0")
texts = st.text(characters, max_size=5)  # forms refuse the others
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3)
    ),
    max_leaves=6,
)


@pytest.mark.slow
@pytest.mark.smoke
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    capabilities=st.dictionaries(texts, json_values, max_size=3),
    label=st.text(characters, max_size=20),
    context_window=st.none() | st.integers(0, 2**31 - 1),
    enabled=st.booleans(),
)
def test_whatever_staff_enter_survives_a_dump(db, **fields: object):
    Provider.objects.all().delete()
    provider = Provider.objects.create(name="p", kind="groq")
    provider.models.create(name="m", **fields)
    before = state()
    dumped = tomli_w.dumps(dump())
    assert load(tomllib.loads(dumped), {}).changes == []
    Provider.objects.all().delete()
    load(tomllib.loads(dumped), {})
    assert state() == before


def test_dumping_takes_a_fixed_number_of_queries(django_assert_max_num_queries):
    for number in range(5):
        provider = Provider.objects.create(name=f"p{number}", kind="groq")
        provider.keys.create(secret="x")
        for name in ("a", "b"):
            model = provider.models.create(name=name)
            model.groups.add(Group.objects.create(name=f"g{number}{name}"))
            model.fallbacks.add(LanguageModel.objects.first())
        Tool.objects.create(name=f"t{number}")
    with django_assert_max_num_queries(16):
        dump()


# Changes


def test_each_change_is_reported_with_its_old_value():
    load(document(), ENVIRONMENT)
    changed = (
        FILE.replace("context_window = 131072", "context_window = 200000")
        .replace("weight = 3", "weight = 1")
        .replace('alias = "oss"\n', "")
        .replace("enabled = false", "enabled = true")
        .replace("vision = false", "vision = true")
        .replace('"research", ', "")
    )
    path = "providers[Groq EU].models[openai/gpt-oss-120b]"
    assert load(document(changed), ENVIRONMENT).changes == [
        "providers[Groq EU].keys[default].weight: 3 → 1",
        f'{path}.alias: "oss" → none',
        f'{path}.capabilities: {{"tools": true, "vision": false}} → '
        '{"tools": true, "vision": true}',
        f"{path}.context_window: 131072 → 200000",
        "providers[Local].enabled: false → true",
        f"{path}.groups: now support",
    ]


def test_true_and_1_are_not_the_same():
    load(document(), ENVIRONMENT)
    changed = FILE.replace("tools = true", "tools = 1")
    [change] = load(document(changed), ENVIRONMENT).changes
    assert '"tools": true' in change
    assert '"tools": 1' in change


def test_rows_that_the_file_does_not_name_stay():
    load(document(), ENVIRONMENT)
    before = state()
    assert load({"providers": [{"name": "New", "kind": "groq"}]}, {}).changes == [
        "providers[New]: created"
    ]
    Provider.objects.get(name="New").delete()
    assert state() == before


def test_the_default_passes_to_the_model_of_the_file():
    load(document(), ENVIRONMENT)
    moved = FILE.replace("is_default = true\n", "").replace(
        'name = "llama"', 'name = "llama"\n  is_default = true'
    )
    load(document(moved), ENVIRONMENT)
    assert LanguageModel.objects.get(is_default=True).name == "llama"


def test_a_dry_run_reports_and_changes_nothing():
    before = state()
    assert load(document(), ENVIRONMENT, dry_run=True).changes
    assert state() == before


# Keys


def test_a_key_is_replaced_when_the_environment_has_another():
    load(document(), ENVIRONMENT)
    report = load(document(), {"GROQ_KEY": "gsk-other"})
    assert report.changes == ["providers[Groq EU].keys[default].secret: replaced"]
    assert ApiKey.objects.get().is_current_key("gsk-other")


@pytest.mark.parametrize("state", ["disabled", "resting"])
def test_a_new_key_that_enables_a_refused_one_again_is_reported(state: str):
    load(document(), ENVIRONMENT)
    ApiKey.objects.update(state=state, state_reason="E_KEY: refused")
    report = load(document(), {"GROQ_KEY": "gsk-other"})
    path = "providers[Groq EU].keys[default]"
    assert sorted(report.changes) == [
        f"{path}.secret: replaced",
        f'{path}.state: "{state}" → "active"',
    ]
    key = ApiKey.objects.get()
    assert (key.state, key.state_reason) == ("active", "")


def test_a_literal_key_is_refused_unless_allowed():
    literal = FILE.replace("env:GROQ_KEY", "gsk-literal")
    with pytest.raises(ConfigError) as caught:
        load(document(literal), {})
    assert caught.value.problems == [
        "providers[Groq EU].keys[default].secret: a key does not belong in a file;"
        ' write "env:NAME" and set NAME in the environment'
        " (or pass --allow-literal-keys)."
    ]
    load(document(literal), {}, allow_literal_keys=True)
    assert ApiKey.objects.get().is_current_key("gsk-literal")


@pytest.mark.parametrize("value", ["", "  "])
def test_a_new_key_needs_its_variable(value: str):
    with pytest.raises(ConfigError) as caught:
        load(document(), {"GROQ_KEY": value})
    assert caught.value.problems == [
        "providers[Groq EU].keys[default].secret: GROQ_KEY is not set, and no key is"
        " stored yet."
    ]


def test_a_resting_key_goes_on_resting():
    load(document(), ENVIRONMENT)
    ApiKey.objects.update(state="resting")
    assert load(document(), ENVIRONMENT).changes == []
    assert load(dump(), {}).changes == []
    assert ApiKey.objects.get().state == "resting"


def test_a_dump_has_a_variable_of_its_own_for_each_key_and_no_key():
    for name in ("a b", "a", "7x", "ключ"):
        provider = Provider.objects.create(name=name, kind="groq")
        for label in ("c", "b c"):
            provider.keys.create(label=label, secret="gsk-planted")
    text = tomli_w.dumps(dump())
    assert "gsk-planted" not in text
    assert "f1:" not in text
    names = [
        key["secret"] for provider in dump()["providers"] for key in provider["keys"]
    ]
    assert len(set(names)) == len(names) == 8
    assert "env:A_B_C_KEY" in names
    assert "env:A_B_C_KEY_2" in names
    assert "env:_7X_C_KEY" in names


def test_the_key_that_this_server_makes_for_itself_is_not_dumped():
    demo = Provider.objects.create(name="demo", kind="demo")
    demo.keys.create(label="environment", secret="made-here")
    assert dump() == {"providers": [{"name": "demo", "kind": "demo"}]}


GROUP_KEY = """
[[providers]]
name = "Host"
kind = "openai"

  [[providers.keys]]
  label = "of research"
  secret = "env:GROQ_KEY"
  group = "research"
"""


def key_group() -> str:
    key = ApiKey.objects.get()
    return key.group.name if key.group else "everybody"


def test_a_key_of_a_group_is_the_group_s_on_another_server_too():
    load(document(GROUP_KEY), ENVIRONMENT)
    assert key_group() == "research"
    text = tomli_w.dumps(dump())
    Provider.objects.all().delete()
    Group.objects.all().delete()
    [variable] = [key["secret"] for key in dump_keys(text)]
    environment = {variable.removeprefix("env:"): "sk-planted-7654321"}
    load(document(text), environment)
    assert key_group() == "research"
    assert load(document(text), environment).changes == []


def dump_keys(text: str) -> list[dict]:
    return [key for each in document(text)["providers"] for key in each["keys"]]


def test_another_group_of_a_key_is_a_change():
    load(document(GROUP_KEY), ENVIRONMENT)
    Group.objects.create(name="support")
    moved = GROUP_KEY.replace('group = "research"', 'group = "support"')
    path = "providers[Host].keys[of research].group"
    assert load(document(moved), ENVIRONMENT).changes == [f"{path}: now support"]
    assert key_group() == "support"
    without = GROUP_KEY.replace('group = "research"', "")
    assert load(document(without), ENVIRONMENT).changes == [f"{path}: now everybody"]
    assert key_group() == "everybody"


def test_a_key_whose_group_may_not_be_added_is_not_stored():
    with pytest.raises(ConfigError) as caught:
        load(document(GROUP_KEY), ENVIRONMENT, may_add_groups=False)
    assert caught.value.problems == ["group 'research': you may not add groups."]
    assert not ApiKey.objects.exists()
    with pytest.raises(ConfigError) as caught:
        load(document(GROUP_KEY.replace('"research"', "3")), ENVIRONMENT)
    assert caught.value.problems == [
        "providers[Host].keys[of research].group: write a string."
    ]
    assert not ApiKey.objects.exists()


HOST = {"name": "Host", "kind": "openai"}


@pytest.mark.parametrize(
    ("kind", "wrap"),
    [
        (KEY, lambda row: {"providers": [{**HOST, "keys": [row]}]}),
        (MODEL, lambda row: {"providers": [{**HOST, "models": [row]}]}),
        (TOOL, lambda row: {"tools": [{"kind": "http", "description": "It.", **row}]}),
        (SOURCE, lambda row: {"sources": [row]}),
        (PRESET, lambda row: {"presets": [row]}),
        (IDENTITY_PROVIDER, lambda row: {"identity_providers": [row]}),
    ],
)
def test_no_field_of_the_file_is_known_and_not_read(kind, wrap):
    for name in [*kind.links, *kind.references, *kind.inner]:
        table = wrap({kind.identity: "some", name: 7})
        with pytest.raises(ConfigError) as caught:
            load(table, ENVIRONMENT)
        found = [each for each in caught.value.problems if f".{name}: write" in each]
        assert found, (name, caught.value.problems)


# Mistakes


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        (
            "[[tools]]",
            "[[tool]]",
            "the file: unknown field 'tool'; did you mean tools?",
        ),
        (
            "weight = 3",
            "wieght = 3",
            "providers[Groq EU].keys[default]: unknown field 'wieght';"
            " did you mean weight?",
        ),
        (
            "weight = 3",
            "hint = 'x'",
            "providers[Groq EU].keys[default]: unknown field 'hint';"
            " known: label, secret, state, weight, group.",
        ),
        (
            "weight = 3",
            "weight = true",
            "providers[Groq EU].keys[default].weight: write a whole number.",
        ),
        (
            "weight = 3",
            "weight = -1",
            "providers[Groq EU].keys[default].weight: Ensure this value is greater"
            " than or equal to 0.",
        ),
        (
            '"env:GROQ_KEY"',
            "7",
            'providers[Groq EU].keys[default].secret: write "env:NAME".',
        ),
        (
            'kind = "groq"',
            'kind = "grok"',
            "providers[Groq EU].kind: Value 'grok' is not a valid choice.",
        ),
        (
            'kind = "groq"\n',
            "",
            "providers[Groq EU].kind: This field cannot be blank.",
        ),
        ('name = "Local"\n', "", "providers[2].name: write a string."),
        (
            'name = "Local"',
            'name = "Lo\\u0000cal"',
            "providers[2].name: this has a NUL, which cannot be stored.",
        ),
        (
            'name = "Local"',
            'name = "Groq EU"',
            "providers[Groq EU]: this name occurs twice.",
        ),
        (
            "enabled = false",
            'enabled = "no"',
            "providers[Local].enabled: write true or false.",
        ),
        (
            'base_url = "http://ollama:11434/v1"',
            'base_url = "ollama"',
            "providers[Local].base_url: Write an address that begins with http://",
        ),
        (
            "{temperature = 0.5}",
            "{temprature = 0.5}",
            "providers[Local].models[llama].options: Unknown: temprature.",
        ),
        (
            "{temperature = 0.5}",
            "{temperature = 1979-05-27}",
            "providers[Local].models[llama].options: this has a value that JSON",
        ),
        (
            "{temperature = 0.5}",
            '"{"',
            "providers[Local].models[llama].options: this text is not JSON.",
        ),
        (
            "{temperature = 0.5}",
            "3",
            "providers[Local].models[llama].options: write a table",
        ),
        ("timeout = 2.5", "timeout = nan", "tools[weather].timeout: write a number"),
        (
            '"Local/llama"',
            '"Local/lama"',
            "providers[Groq EU].models[openai/gpt-oss-120b].fallbacks: there is no"
            " model 'Local/lama'.",
        ),
        (
            'groups = ["support"]',
            'groups = "support"',
            "tools[weather].groups: write a list of names.",
        ),
        (
            'name = "llama"',
            'name = "llama"\n  is_default = true',
            "providers[Groq EU].models[openai/gpt-oss-120b].is_default and"
            " providers[Local].models[llama].is_default: only one model can be the"
            " default.",
        ),
        (
            "X-Team",
            "Authorization",
            "providers[Groq EU].options: The header 'Authorization' is a secret;",
        ),
    ],
)
def test_a_mistake_names_its_place_and_changes_nothing(old, new, problem):
    assert old in FILE
    before = state()
    with pytest.raises(ConfigError) as caught:
        load(document(FILE.replace(old, new, 1)), ENVIRONMENT)
    assert any(message.startswith(problem) for message in caught.value.problems)
    assert state() == before


def test_all_mistakes_are_reported_at_once():
    with pytest.raises(ConfigError) as caught:
        load(
            document(
                FILE.replace('"groq"', '"grok"')
                .replace("weight = 3", "wieght = 3")
                .replace("timeout = 2.5", 'timeout = "long"')
            ),
            {},
        )
    assert len(caught.value.problems) == 4


@pytest.mark.parametrize("tables", [1, "x", {"name": "x"}, [1]])
def test_a_value_that_is_no_list_of_tables_is_reported(tables: object):
    with pytest.raises(ConfigError, match="providers: write a list of tables"):
        load({"providers": tables}, {})


# The commands


@pytest.fixture
def file(tmp_path: Path, monkeypatch) -> Path:
    monkeypatch.setenv("GROQ_KEY", ENVIRONMENT["GROQ_KEY"])
    path = tmp_path / "parley.toml"
    path.write_text(FILE)
    return path


def run(*args: object) -> list[str]:
    out = io.StringIO()
    call_command(*args, stdout=out)
    return out.getvalue().splitlines()


def test_the_commands_report_what_they_do(file: Path):
    dry = run("load_config", file, "--dry-run")
    assert dry[-1] == "Nothing was changed: --dry-run."
    done = run("load_config", file)
    assert done == dry[:-1]
    assert run("load_config", file) == ["Nothing to do."]
    file.write_text("\n".join(run("dump_config")))
    assert run("load_config", file)[-1] == "Nothing to do."


def test_an_empty_database_dumps_an_empty_file(file: Path):
    file.write_text("\n".join(run("dump_config")))
    assert tomllib.loads(file.read_text()) == {}
    assert run("load_config", file) == ["Nothing to do."]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"[[providers]\n", "parley.toml: Expected ']]'"),
        (b"\xff", "parley.toml: the file is not UTF-8."),
        (b"x = 1", "Nothing was changed."),
    ],
)
def test_an_unreadable_file_is_reported(file: Path, content: bytes, message: str):
    file.write_bytes(content)
    with pytest.raises(CommandError) as caught:
        run("load_config", file)
    assert message in str(caught.value)


def test_a_file_that_begins_with_a_mark_of_its_encoding_is_loaded(file: Path):
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes())
    run("load_config", file)
    assert Provider.objects.filter(name="Local").exists()


def test_a_missing_file_is_reported(tmp_path: Path):
    with pytest.raises(CommandError, match="No such file"):
        run("load_config", tmp_path / "missing.toml")


# Tools


APPROVED = """
[[tools]]
name = "weather"
approval = "always"
approvers = "meteorologists"

[[tools]]
name = "web"
kind = "hosted"
definition = {type = "web_search"}
"""


def test_approval_rules_and_hosted_definitions_are_in_the_file():
    load(document(APPROVED), {})
    tool = Tool.objects.get(name="weather")
    assert (tool.approval, tool.approvers.name) == ("always", "meteorologists")
    assert Tool.objects.load_for(None).hosted == {"web": {"type": "web_search"}}
    before = dump()
    assert {table["name"]: table.get("approvers") for table in before["tools"]} == {
        "weather": "meteorologists",
        "web": None,
    }
    assert load(before, {}).changes == []
    Tool.objects.all().delete()
    load(before, {})
    assert dump() == before
    nobody = APPROVED.replace('approvers = "meteorologists"', "")
    assert load(document(nobody), {}).changes == [
        "tools[weather].approvers: now nobody"
    ]


def test_a_load_that_changes_a_tool_is_a_version_of_it():
    Tool.objects.create(name="weather")
    load(document(APPROVED), {})
    load(document(APPROVED), {})
    versions = Tool.objects.get(name="weather").versions.values_list("number", "note")
    assert list(versions) == [(2, "Configuration file"), (1, "")]
    load(document(FILE), ENVIRONMENT, dry_run=True)
    assert len(versions.all()) == 2


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("approvers = 7", "tools[weather].approvers: write a string."),
        (
            'kind = "hosted"\ndefinition = {type = "teleport"}',
            "No provider has a tool of the type 'teleport'",
        ),
    ],
)
def test_an_invalid_value_of_a_tool_is_reported(line: str, expected: str):
    with pytest.raises(ConfigError) as raised:
        load(document(f'[[tools]]\nname = "weather"\n{line}'), {})
    assert any(expected in problem for problem in raised.value.problems)


# Secrets and addresses


HTTP_FILE = """
[[tools]]
name = "orders"
kind = "http"
description = "Looks up orders."

  [tools.http]
  url = "https://api.example/orders"
  secret_headers = {X-Key = "env:ORDERS_KEY"}
"""


def test_keys_follow_an_address_that_the_file_changes():
    load(document(), ENVIRONMENT)
    provider = Provider.objects.get(name="Groq EU")
    provider.keys.create(label="of staff", secret="gsk-of-staff")
    elsewhere = FILE.replace(
        'kind = "groq"', 'kind = "groq"\nbase_url = "https://eu.groq.example/v1"'
    )
    load(document(elsewhere), {})
    provider = Provider.objects.get(name="Groq EU")
    secrets = {key.label: key.secret.reveal() for key in provider.keys.all()}
    assert secrets == {"default": ENVIRONMENT["GROQ_KEY"], "of staff": "gsk-of-staff"}
    assert {key.entered_for for key in provider.keys.all()} == {
        "https://eu.groq.example:443"
    }


def test_stored_rows_have_their_owner(django_assert_num_queries):
    load(document(), ENVIRONMENT)
    provider = Provider.objects.get(name="Groq EU")
    stored, owner = StoredRows(), {"provider": provider}
    with django_assert_num_queries(1):
        (key,) = stored.list_all(KEY, owner)
        assert key.provider is provider
        assert stored.find(KEY, "default", owner) is key


def test_headers_follow_an_address_that_the_file_changes():
    load(document(HTTP_FILE), {"ORDERS_KEY": "s3cret"})
    elsewhere = HTTP_FILE.replace("api.example", "new.example")
    report = load(document(elsewhere), {"ORDERS_KEY": "s3cret"})
    assert [each for each in report.changes if "secret" in each] == []
    [http] = HttpTool.objects.all()
    assert http.url == "https://new.example/orders"
    assert http.get_secret_headers() == {"X-Key": "s3cret"}


def test_a_file_brings_an_address_that_was_changed_back_with_its_secrets():
    load(document(FILE + HTTP_FILE), {**ENVIRONMENT, "ORDERS_KEY": "s3cret"})
    for row in (Provider.objects.get(name="Groq EU"), HttpTool.objects.get()):
        name = "url" if isinstance(row, HttpTool) else "base_url"
        setattr(row, name, "https://thief.example/v1")
        row.save()
    assert not ApiKey.objects.get().is_current_key(ENVIRONMENT["GROQ_KEY"])
    assert HttpTool.objects.get().get_secret_headers() == {}
    load(document(FILE + HTTP_FILE), {**ENVIRONMENT, "ORDERS_KEY": "s3cret"})
    assert ApiKey.objects.get().is_current_key(ENVIRONMENT["GROQ_KEY"])
    assert HttpTool.objects.get().get_secret_headers() == {"X-Key": "s3cret"}


def manage(data: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    named = {"PARLEY_DATA": str(data), "PARLEY_READ_DOTENV": "false"}
    return subprocess.run(
        [sys.executable, "manage.py", *arguments],
        env={"PATH": os.environ["PATH"], **named},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.server
def test_a_file_can_be_loaded_before_the_first_start(tmp_path: Path):
    file, data = tmp_path / "parley.toml", tmp_path / "data"
    file.write_text('[[providers]]\nname = "Mine"\nkind = "openai"\n')
    for arguments in (["load_config", str(file), "--dry-run"], ["dump_config"]):
        done = manage(data, *arguments)
        assert done.returncode == 1
        assert done.stderr.startswith("CommandError: The database is not ready")
    done = manage(data, "load_config", str(file))
    assert (done.returncode, done.stdout) == (0, "providers[Mine]: created\n")
    assert 'name = "Mine"' in manage(data, "dump_config").stdout


# Declared tools

DECLARED = """
[[declared_tools]]
kind = "mcp"
allowed_for = "groups"
groups = ["research"]

[[declared_tools]]
kind = "web_search"
allowed_for = "nobody"
"""


def test_groups_that_may_declare_tools_are_loaded_and_dumped(django_user_model):
    DeclaredTool.objects.sync()
    ada = django_user_model.objects.create_user("ada")
    ada.groups.add(Group.objects.create(name="research"))
    report = load(document(DECLARED), {})
    assert report.changes == [
        'declared_tools[mcp].allowed_for: "nobody" → "groups"',
        'declared_tools[web_search].allowed_for: "everybody" → "nobody"',
        "declared_tools[mcp].groups: now research",
    ]
    allowed = DeclaredTool.objects.kinds_for(ada)
    assert "mcp" in allowed
    assert "web_search" not in allowed
    dumped = dump()
    assert load(tomllib.loads(tomli_w.dumps(dumped)), {}).changes == []
    DeclaredTool.objects.all().delete()
    load(dumped, {})
    assert dump() == dumped


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ({"kind": "telepathy"}, "declared_tools[telepathy]: there is no such kind; "),
        ({"kind": "mcp", "allowed_for": "some"}, "declared_tools[mcp].allowed_for: "),
        (
            {"kind": "mcp", "allowed_for": "groups"},
            "declared_tools[mcp].groups: name at least one group.",
        ),
        (
            {"kind": "mcp", "groups": ["research"]},
            'declared_tools[mcp].groups: set allowed_for = "groups"',
        ),
    ],
)
def test_a_table_of_declared_tools_that_makes_no_sense_is_refused(table, problem):
    with pytest.raises(ConfigError) as raised:
        load({"declared_tools": [table]}, {})
    assert str(raised.value.problems[0]).startswith(problem)
    assert not DeclaredTool.objects.exists()


@pytest.mark.parametrize(
    "value",
    [
        "{temperature = nan}",
        "{extra = {a = [-inf]}}",
        "{extra = {at = 2026-01-01}}",
        "'{\"temperature\": NaN}'",
        '\'{"a": "\\ud800"}\'',
        f"'{'[' * 5000}'",
    ],
)
def test_options_that_no_database_stores_are_a_problem(value: str):
    text = FILE.replace("{temperature = 0.5}", value)
    with pytest.raises(ConfigError, match=r"models\[llama\]\.options: this"):
        load(document(text), ENVIRONMENT)
