"""The editor of HTTP tools, and the dry run of every kind."""

from __future__ import annotations

import asyncio
import html
import json
import logging
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Group, Permission, User
from django.urls import reverse

from llm.probing.image import RED_SQUARE
from tests.tools.servers import Answer, ok, serving
from tools.models import HttpTool, Tool
from tools.models import tool as models
from tools.registry import Context, get_tool, tool

pytestmark = pytest.mark.django_db
ADD = reverse("admin:tools_tool_add")
PLANTED = "planted-secret-0123456789"
SCHEMA = """{
  "type": "object",
  "properties": {
    "id": {"type": "string"}
  },
  "required": ["id"]
}"""


def page(row: Tool, kind: str = "change") -> str:
    return reverse(f"admin:tools_tool_{kind}", args=[row.pk])


def form(row: Tool | None = None, **fields: object) -> dict:
    """The editor's form as a browser sends it."""
    http = {
        "method": "GET",
        "url": "https://api.test/things/{id}",
        "parameters": SCHEMA,
        "places": "",
        "body": "json",
        "secret": "",
        "headers": "",
        "read_as": "auto",
        "pointer": "",
        "max_size": 1000,
        "networks": "",
        **fields.pop("http", {}),
    }
    if row:
        http |= {"id": row.http.pk, "tool": row.pk}
    return {
        "name": "things",
        "description": "Look up a thing.",
        "enabled": "on",
        "http-TOTAL_FORMS": 1,
        "http-INITIAL_FORMS": int(bool(row)),
        **{f"http-0-{name}": value for name, value in http.items()},
        **fields,
    }


def errors(response) -> str:
    assert response.status_code == 200
    text = html.unescape(response.content.decode())
    return " ".join(re.findall(r'<ul class="errorlist.*?</ul>', text, re.DOTALL))


@pytest.fixture
def things(admin_client) -> Tool:
    secret = {"secret": f"Authorization: Bearer {PLANTED}"}
    assert admin_client.post(ADD, form(http=secret)).status_code == 302
    return Tool.objects.get(name="things")


# The editor


def test_a_tool_is_made_without_code(admin_client, things):
    assert things.kind == Tool.Kind.HTTP
    used = Tool.objects.available(None)["things"]
    assert used.description == "Look up a thing."
    assert used.parameters == json.loads(SCHEMA)
    assert things.http.secret_names == ["Authorization"]


def test_its_page_shows_all_but_the_secret(admin_client, things):
    text = html.unescape(admin_client.get(page(things)).content.decode())
    assert "https://api.test/things/{id}" in text
    assert "Currently set: Authorization." in text
    assert PLANTED not in text
    assert things.http.secret_headers.stored not in text
    assert "Dry run" in text


def test_a_secret_that_is_not_named_stays(admin_client, things):
    changed = form(things, http={"secret": "X-Key: other", "max_size": 5})
    assert admin_client.post(page(things), changed).status_code == 302
    http = HttpTool.objects.get()
    assert http.max_size == 5
    assert http.secret_names == ["Authorization", "X-Key"]
    assert PLANTED in http.secret_headers.reveal()
    cleared = form(things, http={"secret": "Authorization:"})
    assert admin_client.post(page(things), cleared).status_code == 302
    assert HttpTool.objects.get().secret_names == ["X-Key"]


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ('{"type": "object",\n "properties": }', "Line 2, column 16: Expecting value."),
        ("[" * 100_000, "nested too deeply"),
        ("[]", "A schema must be an object, {…}."),
        (
            SCHEMA.replace('"string"', '"txt"'),
            'Line 4, at properties.id.type: "txt" is not one of',
        ),
        (SCHEMA.replace('["id"]', '"id"'), "Line 6, at required:"),
        (
            SCHEMA.replace('["id"]', "[]"),
            "'id' is in the path: make it a required property.",
        ),
        (SCHEMA.replace('"id"', '"no"'), "{id} is not a property of the schema."),
    ],
)
def test_a_mistake_in_the_schema_is_reported_with_its_line(
    admin_client, schema, expected
):
    response = admin_client.post(ADD, form(http={"parameters": schema}))
    assert expected in errors(response)
    assert schema in html.unescape(response.content.decode())  # lines as they were
    assert not HttpTool.objects.exists()


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("url", "ftp://host/{id}", "such as https://host"),
        ("places", '{"id": "elsewhere"}', "'id': there is no location 'elsewhere'"),
        ("places", '{"x": "query"}', "'x' is not a property of the schema."),
        ("headers", '{"Host": "x"}', "'Host' is set by the server; remove it."),
        ("headers", '{"X-Api-Key": "x"}', "write it as a secret header"),
        ("headers", "[", "Enter a valid JSON."),
        ("secret", PLANTED, "Line 1: write a name, a colon and a value."),
        ("secret", f"Host: {PLANTED}", "'Host' is set by the server; remove it."),
        ("networks", "10.0.0.1/8", "10.0.0.1/8 has host bits set."),
        ("pointer", "data", "Write a pointer such as /data/items."),
    ],
)
def test_a_mistake_is_reported_at_its_field(admin_client, field, value, expected):
    response = admin_client.post(ADD, form(http={field: value}))
    assert expected in errors(response)
    assert PLANTED not in response.content.decode()
    assert not Tool.objects.filter(name="things").exists()


def test_a_field_is_not_compared_with_one_that_cannot_be_read(admin_client, things):
    for address in (ADD, page(things)):
        row = things if address != ADD else None
        broken = form(
            row, name="other", http={"parameters": "{", "url": "https://h/{x}"}
        )
        text = errors(admin_client.post(address, broken))
        assert "Line 1, column 2" in text
        assert "not a property of the schema" not in text


def test_a_tool_requires_a_description(admin_client):
    assert "This field is required" in errors(
        admin_client.post(ADD, form(description=""))
    )


def test_a_name_that_code_has_is_taken(admin_client):
    form_errors = errors(admin_client.post(ADD, form(name="calculator")))
    assert "already exists" in form_errors


def test_staff_who_may_only_view_see_no_field_of_a_secret(client, things):
    user = User.objects.create_user("ada", is_staff=True)
    user.user_permissions.add(Permission.objects.get(codename="view_tool"))
    client.force_login(user)
    text = client.get(page(things)).content.decode()
    assert "https://api.test/things/{id}" in text
    assert "http-0-secret" not in text
    assert "Dry run" not in text
    assert client.post(page(things), form(things)).status_code == 403
    assert client.get(ADD).status_code == 403


def test_it_can_be_deleted(admin_client, things):
    admin_client.post(page(things, "delete"), {"post": "yes"})
    assert not HttpTool.objects.exists()


def test_the_page_names_the_providers_that_refuse_the_schema(admin_client, things):
    text = html.unescape(admin_client.get(page(things)).content.decode())
    assert "'additionalProperties' must be false" in text
    calculator = Tool.objects.get(name="calculator")
    text = html.unescape(admin_client.get(page(calculator)).content.decode())
    assert "'additionalProperties' may not be false" in text


def test_a_list_of_many_takes_no_more_queries(
    admin_client, things, django_assert_max_num_queries
):
    for number in range(20):
        row = Tool.objects.create(name=f"t{number}", kind="http", description="x")
        HttpTool.objects.create(tool=row, url="https://api.test/")
    with django_assert_max_num_queries(12):
        admin_client.get(reverse("admin:tools_tool_changelist"))


# The dry run


@tool
def greet(name: str, context: Context) -> str:
    """Greet somebody."""
    context.progress("thinking")
    logging.getLogger("tools.test").warning("greeting in %s", context.turn_id[:8])
    return f"Hello {name}, from user {context.user_id}."


@tool
async def paint() -> list[dict]:
    """Paint."""
    picture = {"type": "input_image", "image_url": RED_SQUARE}
    return [{"type": "input_text", "text": "<b>art</b>"}, picture]


@tool
async def stumble() -> None:
    """Stumble."""
    raise RuntimeError("".join(["private", " ", "words"]))


@tool
def mislog() -> str:
    """Log a line whose arguments do not fit."""
    logging.getLogger("tools.test").warning("%d cakes", "seven")
    logging.getLogger("tools.test").warning("all is well")
    return "Done."


@pytest.fixture
def code(monkeypatch):
    functions = (greet, paint, stumble, mislog)
    found = {get_tool(each).name: get_tool(each) for each in functions}
    monkeypatch.setattr(models, "python_tools", lambda: found)
    Tool.objects.sync()


def run(client, name: str, username: str = "admin", /, **arguments) -> str:
    row = Tool.objects.get(name=name)
    data = {"username": username, "arguments": json.dumps(arguments)}
    response = client.post(page(row, "dry_run"), data)
    assert response.status_code == 200
    return html.unescape(response.content.decode())


def test_it_begins_with_an_example_and_the_staffs_own_name(admin_client):
    row = Tool.objects.get(name="calculator")
    text = html.unescape(admin_client.get(page(row, "dry_run")).content.decode())
    assert '{\n  "expression": "text"\n}' in text
    assert 'value="admin"' in text
    assert "really calls the tool" in text


def test_it_calls_as_the_chosen_user(admin_client, code):
    ada = User.objects.create_user("ada")
    text = run(admin_client, "greet", "ada", name="Bob")
    assert "<strong>completed</strong>" in text
    assert f"Hello Bob, from user {ada.pk}." in text
    assert "<li>thinking</li>" in text
    assert "WARNING tools.test greeting in dry_run_" in text
    entry = LogEntry.objects.latest("pk")
    expected_text = rf"Dry run as user {ada.pk}: completed, \d\.\d\d s\."
    assert re.match(expected_text, entry.change_message)


def test_a_failure_is_shown_as_the_model_reads_it(admin_client, code):
    text = run(admin_client, "greet", name=7)
    assert "<strong>failed</strong>" in text
    assert "Error: the arguments do not fit: at name:" in text
    text = run(admin_client, "stumble")
    assert "stumble failed: RuntimeError." in text
    assert "ERROR tools.execute tool stumble failed" in text
    assert "private words" not in text


def test_a_line_of_the_log_that_cannot_be_written_fails_no_tool(
    admin_client, code, monkeypatch
):
    monkeypatch.setattr(logging.getLogger(), "handlers", [])  # pytest's would raise
    monkeypatch.setattr(logging, "raiseExceptions", False)
    text = run(admin_client, "mislog")
    assert "<strong>completed</strong>" in text
    assert "WARNING tools.test all is well" in text


def test_a_picture_is_shown_and_markup_is_not_believed(admin_client, code):
    row = Tool.objects.get(name="paint")
    data = {"username": "admin", "arguments": "{}"}
    text = admin_client.post(page(row, "dry_run"), data).content.decode()
    assert f'<img src="{RED_SQUARE}"' in text
    assert "&lt;b&gt;art&lt;/b&gt;" in text


@contextmanager
def server_beside(answer: bytes | Answer) -> Iterator[str]:
    """A web server in a thread of its own; gives its address."""
    address: list[str] = []
    ready, done = threading.Event(), threading.Event()

    async def serve() -> None:
        async with serving(answer) as server:
            address.append(server.url("/things/{id}"))
            ready.set()
            await asyncio.to_thread(done.wait)

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    ready.wait()
    try:
        yield address[0]
    finally:
        done.set()
        thread.join()


def test_an_http_tool_that_is_off_can_be_tried(admin_client, things):
    Tool.objects.filter(pk=things.pk).update(enabled=False)
    with server_beside(ok(b'{"name": "Rex"}', "application/json")) as url:
        http = HttpTool.objects.get()
        http.url, http.networks = url, "127.0.0.0/8"
        http.set_secret_headers({"Authorization": f"Bearer {PLANTED}"})
        http.save()
        text = run(admin_client, "things", id="7")
        assert '{\n  "name": "Rex"\n}' in text
        assert "INFO tools.http.call tool things: 200, 15 bytes" in text
        assert "switched off, so models do not get it" in text
        HttpTool.objects.update(networks="")
        text = run(admin_client, "things", id="7")
        assert "Correct the address, or allow its network for this tool." in text
    assert PLANTED not in text


@pytest.mark.parametrize(
    ("username", "expected"),
    [
        ("nobody", "There is no such user."),
        ("bob", "This user may not use the tool."),
        ("gone", "This user may not use the tool."),
        ("", "This field is required."),
    ],
)
def test_trying_a_tool_requires_being_allowed_to_use_it(
    admin_client, code, username, expected
):
    User.objects.create_user("bob")
    User.objects.create_user("gone", is_active=False)
    row = Tool.objects.get(name="greet")
    row.groups.add(Group.objects.create(name="Friends"))
    assert expected in run(admin_client, "greet", username, name="x")


def test_trying_a_tool_requires_the_permission(client, code):
    user = User.objects.create_user("ada", is_staff=True)
    changes = Permission.objects.filter(codename__in=["change_tool", "view_tool"])
    user.user_permissions.set(changes)
    client.force_login(user)
    row = Tool.objects.get(name="greet")
    data = {"username": "ada", "arguments": '{"name": "x"}'}
    assert client.get(page(row, "dry_run")).status_code == 403
    assert client.post(page(row, "dry_run"), data).status_code == 403
    user.user_permissions.add(Permission.objects.get(codename="dry_run_tool"))
    assert "Hello x" in run(client, "greet", "ada", name="x")


def test_a_row_without_code_cannot_be_tried(admin_client):
    assert (
        admin_client.get(reverse("admin:tools_tool_dry_run", args=[0])).status_code
        == 404
    )
    deleted = Tool.objects.create(name="gone", is_missing=True)
    assert admin_client.get(page(deleted, "dry_run")).status_code == 404


def test_users_who_are_no_staff_are_redirected(client):
    row = Tool.objects.get(name="calculator")
    assert client.get(page(row, "dry_run")).status_code == 302
