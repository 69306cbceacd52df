"""HTTP tools in the configuration file; their secrets are names of variables."""

from __future__ import annotations

import tomllib

import pytest
import tomli_w

from project.config_file import ConfigError, dump, load
from tools.models import HttpTool, Tool

pytestmark = pytest.mark.django_db

FILE = """
[[tools]]
name = "order"
kind = "http"
description = "Look an order up."
timeout = 12.5

  [tools.http]
  url = "https://shop.example/orders/{id}"
  places = {lang = "header:Accept-Language"}
  headers = {Accept = "application/json"}
  secret_headers = {Authorization = "env:SHOP_TOKEN"}
  pointer = "/data"

    [tools.http.parameters]
    type = "object"
    required = ["id"]
    properties = {id = {type = "integer"}, lang = {type = "string"}}
"""
ENVIRONMENT = {"SHOP_TOKEN": "Bearer planted-4567"}


@pytest.fixture(autouse=True)
def _no_tools(db) -> None:
    Tool.objects.all().delete()


def made(text: str = FILE, environment=ENVIRONMENT):
    return load(tomllib.loads(text), environment)


def problems(text: str, environment=ENVIRONMENT) -> list[str]:
    with pytest.raises(ConfigError) as refused:
        made(text, environment)
    assert not Tool.objects.exists()
    return refused.value.problems


def test_a_file_creates_a_tool_that_sends_the_described_request():
    assert made().changes == [
        "tools[order]: created",
        "tools[order].http: created",
    ]
    tool = Tool.objects.get()
    assert (tool.kind, tool.timeout) == ("http", 12.5)
    assert tool.http.url == "https://shop.example/orders/{id}"
    assert tool.http.get_secret_headers() == {
        "Authorization": ENVIRONMENT["SHOP_TOKEN"]
    }
    assert tool.build_tool().replay == "safe"
    assert tool.versions.count() == 1


def test_loading_it_again_does_nothing():
    made()
    assert made().changes == []
    assert Tool.objects.get().versions.count() == 1


def test_a_dumped_configuration_creates_the_same_rows_elsewhere():
    made()
    dumped = tomli_w.dumps(dump())
    assert "planted" not in dumped
    assert made(dumped, {"ORDER_AUTHORIZATION": "Bearer planted-4567"}).changes == []
    before = HttpTool.objects.values().get()
    Tool.objects.all().delete()
    made(dumped, {"ORDER_AUTHORIZATION": "Bearer planted-4567"})
    after = HttpTool.objects.values().get()
    row = HttpTool.objects.get()
    assert row.get_secret_headers() == {"Authorization": "Bearer planted-4567"}
    for changed in ("id", "tool_id", "secret_id", "secret_headers"):
        del before[changed], after[changed]
    assert after == before


def test_each_change_is_reported_and_stored_as_a_version():
    made()
    text = FILE.replace('pointer = "/data"', 'pointer = "/data/order"')
    changed = made(text, {"SHOP_TOKEN": "Bearer planted-8901"})
    assert changed.changes == [
        'tools[order].http.pointer: "/data" → "/data/order"',
        "tools[order].http.secret_headers.Authorization: replaced",
    ]
    assert Tool.objects.get().versions.first().note == "Configuration file"


def test_a_secret_that_is_not_in_the_environment_stays_as_it_is():
    made()
    (note,) = made(environment={}).notes
    assert note == (
        "tools[order].http.secret_headers.Authorization: SHOP_TOKEN is not set; the"
        " stored header stays."
    )


def test_the_policy_of_a_tool_may_be_set_without_its_definition():
    made()
    problems = made('[[tools]]\nname = "order"\nkind = "http"\ndescription = "Now."\n')
    assert not [change for change in problems.changes if ".http" in change]
    assert Tool.objects.get().http.pointer == "/data"


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        (
            'kind = "http"',
            'kind = "python"',
            'tools[order].http: only a tool of kind "http" has one.',
        ),
        (
            'secret_headers = {Authorization = "env:SHOP_TOKEN"}',
            'secret_headers = {Authorization = "Bearer planted"}',
            "tools[order].http.secret_headers.Authorization: a header does not belong"
            ' in a file; write "env:NAME" and set NAME in the environment (or pass'
            " --allow-literal-keys).",
        ),
        (
            'pointer = "/data"',
            "pointr = 1",
            "tools[order].http: unknown field 'pointr'; did you mean pointer?",
        ),
        (
            'required = ["id"]',
            "required = 1",
            'tools[order].http.parameters: At required: 1 is not of type "array".',
        ),
        (
            'description = "Look an order up."',
            "",
            "tools[order].description: Describe for the model what the tool does and"
            " when to use it.",
        ),
    ],
)
def test_a_mistake_is_reported_with_its_path_and_nothing_is_created(old, new, problem):
    assert FILE.count(old) == 1
    assert problem in problems(FILE.replace(old, new))


def test_a_tool_of_this_kind_needs_its_table():
    text = '[[tools]]\nname = "order"\nkind = "http"\ndescription = "Look up."\n'
    problem = 'tools[order].http: missing; a tool of kind "http" needs it.'
    assert problems(text) == [problem]
    text += "http = 1\n"
    assert problems(text) == ["tools[order].http: write a table."]
