"""The editor of tools: providers' own, approval, and what each kind's page has."""

from __future__ import annotations

import html

import pytest
from django.contrib.auth.models import Group
from django.urls import reverse

from tests.tools.http.test_http_admin import ADD, errors, form, page
from tools.models import Tool
from tools.models import tool as models
from tools.registry import Accepted, get_tool, tool

pytestmark = pytest.mark.django_db
HOSTED = f"{ADD}?kind=hosted"


def text_of(response) -> str:
    assert response.status_code == 200
    return html.unescape(response.content.decode())


def hosted(**fields: object) -> dict:
    return {
        "name": "search",
        "label": "",
        "enabled": "on",
        "definition": '{"type": "web_search"}',
        **fields,
    }


# Tools of providers


def test_the_form_starts_with_a_preset_and_names_supporting_providers(admin_client):
    text = text_of(admin_client.get(f"{HOSTED}&preset=code_interpreter"))
    assert '"type": "code_interpreter"' in text
    assert 'value="code_interpreter"' in text
    assert "The model searches the web and cites pages." in text
    assert "Anthropic" in text
    assert "http-0-url" not in text


def test_a_hosted_tool_is_created_and_available(admin_client):
    assert admin_client.post(HOSTED, hosted()).status_code == 302
    row = Tool.objects.get(name="search")
    assert row.kind == Tool.Kind.HOSTED
    assert Tool.objects.load_for(None).hosted == {"search": {"type": "web_search"}}
    text = text_of(admin_client.get(page(row)))
    assert "Providers that have this tool" in text
    assert "Dry run" not in text
    assert text_of(admin_client.get(reverse("admin:tools_tool_changelist")))


@pytest.mark.parametrize(
    ("definition", "expected"),
    [
        ("", "This field is required."),
        ("{", "Line 1, column 2"),
        ('{"type": "teleport"}', "No provider has a tool of the type 'teleport'"),
        (
            '{"type": "file_search", "vector_store_ids": ["vs_..."]}',
            "id of a vector store",
        ),
        ('{"type": "computer"}', "Computer use needs a program"),
    ],
)
def test_an_invalid_definition_is_reported_at_its_field(
    admin_client, definition, expected
):
    response = admin_client.post(HOSTED, hosted(definition=definition))
    assert expected in errors(response)
    assert not Tool.objects.filter(name="search").exists()


def test_the_name_of_a_function_does_not_make_a_hosted_tool_ours():
    row = Tool(name="calculator", kind=Tool.Kind.HOSTED, definition={"type": "mcp"})
    assert row.build_base_tool() is None


# Approval and waiting, for every kind that runs here


def a_change(row: Tool, **fields: object) -> dict:
    return {"enabled": "on", "name": row.name, "label": "", **fields}


@pytest.fixture
def calculator() -> Tool:
    return Tool.objects.get(name="calculator")


def test_staff_set_when_approval_is_needed_and_whether_the_model_waits(
    admin_client, calculator
):
    chefs = Group.objects.create(name="chefs")
    rule = '{"properties": {"expression": {"maxLength": 3}}}'
    changed = a_change(
        calculator,
        approval="rule",
        approval_rule=rule,
        approvers=chefs.pk,
        blocking="False",
    )
    assert admin_client.post(page(calculator), changed).status_code == 302
    used = Tool.objects.available(None)["calculator"]
    assert not used.blocking
    assert used.approval.policy == "rule"
    assert used.approval.group_id == chefs.pk
    listed = text_of(admin_client.get(reverse("admin:tools_tool_changelist")))
    assert "if the arguments match a rule" in listed
    assert admin_client.post(page(calculator), a_change(calculator)).status_code == 302
    used = Tool.objects.available(None)["calculator"]
    assert (used.blocking, used.approval) == (True, None)


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (
            "",
            "Enter a JSON Schema that matches the arguments of calls that need"
            " approval.",
        ),
        (
            "{}",
            "Enter a JSON Schema that matches the arguments of calls that need"
            " approval.",
        ),
        ("[]", "A schema must be an object"),
        ('{\n  "properties": }', "Line 2, column 17"),
        (
            '{\n  "properties": {\n    "euros": {"type": "money"}\n  }\n}',
            "Line 3, at properties.euros.type",
        ),
    ],
)
def test_an_invalid_rule_is_reported_with_its_line(
    admin_client, calculator, rule, expected
):
    sent = a_change(calculator, approval="rule", approval_rule=rule)
    response = admin_client.post(page(calculator), sent)
    assert expected in errors(response)
    if rule:
        assert rule in text_of(response)


def test_an_http_tool_has_the_same_fields(admin_client):
    sent = form(approval="first", blocking="True", http={"async_answers": "on"})
    assert admin_client.post(ADD, sent).status_code == 302
    used = Tool.objects.available(None)["things"]
    assert used.approval.policy == "first"
    assert used.blocking
    assert used.poll is not None


def test_an_empty_choice_shows_its_meaning(admin_client, calculator):
    assert "according to its code" in text_of(admin_client.get(page(calculator)))
    assert "according to its HTTP method" in text_of(admin_client.get(ADD))


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("job_url", "https://a.test/jobs", "Write {id} exactly once, in the path."),
        ("job_url", "ftp://a.test/{id}", "such as https://host"),
        ("job_url", "https://a.test/{id}", "Enter the pointer to the id"),
        ("job_pointer", "id", "Write a pointer"),
        (
            "pending_states",
            "queued",
            "Enter both the pointer to the state and the pending states, or neither.",
        ),
        ("poll_after", "0", "greater than or equal to 1"),
        ("callback_place", "cookie:x", "there is no location 'cookie'"),
        ("callback_place", "path:x", "Choose one of header, query, body."),
        ("callback_place", "header:Host", "'Host' is set by the server; remove it."),
        ("callback_place", "body:url", "GET has no body."),
    ],
)
def test_how_a_later_result_is_found_is_checked(admin_client, field, value, expected):
    sent = form(http={"async_answers": "on", field: value})
    assert expected in errors(admin_client.post(ADD, sent))


def test_a_dry_run_reports_a_deferred_result(admin_client, calculator):
    @tool(poll=lambda context, token: None)
    async def bake() -> Accepted:
        """Bake a cake."""
        return Accepted("7", poll_after=30)

    row = Tool.objects.create(name="bake")
    url = reverse("admin:tools_tool_dry_run", args=[row.pk])
    sent = {"username": "admin", "arguments": "{}"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(models, "python_tools", lambda: {"bake": get_tool(bake)})
        text = text_of(admin_client.post(url, sent))
    assert "accepted" in text
    assert "A turn would poll for it after 30 s." in text
