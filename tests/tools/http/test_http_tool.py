from __future__ import annotations

import base64
import json
import logging
from urllib.parse import parse_qsl, urlsplit

import pytest
from cryptography.fernet import Fernet
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from hypothesis import given
from hypothesis import strategies as st
from yarl import URL

from llm.db.encrypted_field import MASK, Secret, list_encrypted_fields
from tests.tools.calls import call
from tests.tools.servers import answer, ok, redirect, serving
from tools.errors import ToolError
from tools.execute import execute
from tools.http.exchange import FetchedResponse
from tools.http.request_template import (
    ParameterLocation,
    RequestTemplate,
    build_request,
)
from tools.http.result import ReadOptions, result_of, texts_to_mask
from tools.http.validation import find_problems, url_problems
from tools.models import HttpTool, Tool
from tools.registry import Context

HOST = "https://api.test"


def definition(method: str = "GET", url: str = f"{HOST}/things", **fields):
    places = fields.pop("places", {})
    read = {name: ParameterLocation.parse(name, text) for name, text in places.items()}
    return RequestTemplate(method=method, url=url, locations=read, **fields)


def request_with(arguments: dict, *args, **fields):
    return build_request(definition(*args, **fields), arguments)


# Arguments in their places


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ("7", "/things/7"),
        (7, "/things/7"),
        (1.5, "/things/1.5"),
        (True, "/things/true"),
        ("a b", "/things/a%20b"),
        ("a/b", "/things/a%2Fb"),
        ("../x", "/things/..%2Fx"),
        ("?a=1#b", "/things/%3Fa%3D1%23b"),
        ("%2e%2e", "/things/%252e%252e"),
        ("é", "/things/%C3%A9"),
        ("a~b-c_d.e", "/things/a~b-c_d.e"),
        (["a", "b,c"], "/things/a,b%2Cc"),
        ({"a": 1}, "/things/%7B%22a%22%3A1%7D"),
    ],
)
def test_a_path_takes_any_value_and_stays_one_path(value, path):
    assert (
        request_with({"id": value}, url=f"{HOST}/things/{{id}}").url == f"{HOST}{path}"
    )


@pytest.mark.parametrize("value", ["", ".", "..", [], ["."]])
def test_an_argument_that_changes_the_path_is_refused(value):
    with pytest.raises(ToolError, match="'id' cannot be"):
        request_with({"id": value}, url=f"{HOST}/things/{{id}}")


@given(st.text(min_size=1).filter(lambda text: text not in (".", "..")))
def test_whatever_the_text_it_is_one_segment_for_the_client_too(text: str):
    url = URL(request_with({"id": text}, url=f"{HOST}/a/{{id}}/b").url)
    raw = url.raw_path.split("/")
    assert (url.host, raw[1], len(raw), raw[3]) == ("api.test", "a", 4, "b")
    assert url.query_string == url.fragment == ""
    clean = text.encode(errors="replace").decode()
    assert url.parts[2] == clean


@pytest.mark.parametrize("arguments", [{}, {"id": None}])
def test_a_placeholder_must_be_filled(arguments):
    with pytest.raises(ToolError, match="'id' is part of the address"):
        request_with(arguments, url=f"{HOST}/things/{{id}}")


@pytest.mark.parametrize(
    ("path", "value", "query"),
    [
        ("query", "a b&c=d", "x=a%20b%26c%3Dd"),
        ("query", ["a", "b"], "x=a&x=b"),
        ("query", [], ""),
        ("query", None, ""),
        ("query", False, "x=false"),
        ("query", {"a": 1}, "x=%7B%22a%22%3A1%7D"),
        ("query:y[]", [1, 2], "y%5B%5D=1&y%5B%5D=2"),
        ("query_commas", ["a", "b"], "x=a%2Cb"),
        ("query_deep", {"a": 1, "b": {"c": [2, 3]}}, "x%5Ba%5D=1&x%5Bb%5D%5Bc%5D=2"),
    ],
)
def test_a_query_parameter_is_encoded_by_its_style(path, value, query):
    url = request_with({"x": value}, places={"x": path}).url
    assert urlsplit(url).query.startswith(query)
    assert bool(urlsplit(url).query) == bool(query)


def test_a_query_of_the_template_stays():
    url = request_with({"x": 1}, url=f"{HOST}/things?format=json").url
    assert parse_qsl(urlsplit(url).query) == [("format", "json"), ("x", "1")]


@pytest.mark.parametrize(
    ("method", "url", "body"),
    [
        ("GET", f"{HOST}/things?a=1", None),
        ("HEAD", f"{HOST}/things?a=1", None),
        ("DELETE", f"{HOST}/things?a=1", None),
        ("POST", f"{HOST}/things", b'{"a":1}'),
        ("PUT", f"{HOST}/things", b'{"a":1}'),
        ("PATCH", f"{HOST}/things", b'{"a":1}'),
    ],
)
def test_without_a_location_the_method_decides(method, url, body):
    request = request_with({"a": 1}, method)
    assert (request.method, request.url, request.body) == (method, url, body)
    content_type = request.headers.get("Content-Type")
    assert content_type == ("application/json" if body else None)


def test_a_body_has_the_fields_names():
    places = {"first": "body:first-name", "none": "body"}
    request = request_with({"first": "Ada", "none": None}, "POST", places=places)
    assert json.loads(request.body) == {"first-name": "Ada", "none": None}


def test_a_form_is_encoded_as_browsers_do():
    request = request_with({"a": "x y", "b": [1, 2], "c": None}, "POST", body="form")
    assert request.body == b"a=x%20y&b=1&b=2"
    assert request.headers["Content-Type"] == "application/x-www-form-urlencoded"


def test_a_body_may_be_one_argument():
    places = {"all": "whole_body"}
    assert request_with({"all": [1]}, "POST", places=places).body == b"[1]"
    assert request_with({"all": "x"}, "POST", places=places).body == b'"x"'
    plain = {"Content-Type": "text/plain"}
    assert request_with({"all": "x"}, "POST", places=places, headers=plain).body == b"x"


def test_all_fields_left_out_are_still_an_object():
    known = definition("POST", arguments=["a"])
    assert build_request(known, {}).body == b"{}"
    assert build_request(definition("POST"), {}).body is None


def test_headers_are_sent_and_arguments_take_precedence():
    request = request_with(
        {"lang": "fr"},
        places={"lang": "header:Accept-Language"},
        headers={"Accept-Language": "en", "X-Client": "parley"},
    )
    assert request.headers["Accept-Language"] == "fr"
    assert request.headers["X-Client"] == "parley"
    assert request.headers["Accept"].startswith("application/json")


@pytest.mark.parametrize("value", ["a\r\nX-Injected: 1", "a\0b", "é", "a\tb"])
def test_a_header_takes_one_plain_line(value):
    with pytest.raises(ToolError, match="one line of plain ASCII"):
        request_with({"a": value}, places={"a": "header"})


def test_half_an_emoji_is_no_json():
    with pytest.raises(ToolError, match="JSON cannot represent"):
        request_with({"a": "\ud83d"}, "POST")


# Reading an answer


def fetched(body: bytes = b"", content_type: str = "", status: int = 200, **fields):
    return FetchedResponse(
        status=status, body=body, content_type=content_type, **fields
    )


@pytest.mark.parametrize(
    ("body", "content_type", "result"),
    [
        (b'{"a": 1}', "application/json", {"a": 1}),
        (b"[1]", "application/problem+json", [1]),
        (b"[123456789012345678901]", "application/json", [123456789012345678901]),
        (b"not json", "application/json", "not json"),
        (b'{"a": 1}', "text/plain", '{"a": 1}'),
        (b"<p>hi</p>", "text/html", "<p>hi</p>"),
        (b"a,b", "text/csv", "a,b"),
        (b"\xef\xbb\xbfhi", "text/plain", "hi"),
        (b"\xff", "text/plain", "\N{REPLACEMENT CHARACTER}"),
        (b"plain", "", "plain"),
        (b"plain", "application/octet-stream", "plain"),
    ],
)
def test_the_content_type_determines_how_to_read(body, content_type, result):
    assert result_of(fetched(body, content_type), ReadOptions()) == result


@pytest.mark.parametrize(
    ("charset", "text"),
    [("latin-1", "é"), ("utf-8", "�"), ("nonsense", "�"), ("base64", "�")],
)
def test_a_charset_is_believed_where_there_is_one(charset, text):
    fetched_text = fetched(b"\xe9", "text/plain", charset=charset)
    assert result_of(fetched_text, ReadOptions()) == text


def test_a_picture_is_shown():
    (part,) = result_of(fetched(b"\x89PNG", "image/png"), ReadOptions())
    assert part["type"] == "input_image"
    data = base64.b64encode(b"\x89PNG").decode()
    assert part["image_url"] == f"data:image/png;base64,{data}"


def test_an_undecodable_answer_is_reported():
    with pytest.raises(ToolError, match="4 bytes of 'application/zip'"):
        result_of(fetched(b"PK\0\xff", "application/zip"), ReadOptions())


@pytest.mark.parametrize(
    ("pointer", "result"),
    [
        ("/data/items/1", "b"),
        ("/data", {"items": ["a", "b"], "a/b": {"~": 7}}),
        ("/data/a~1b/~0", 7),
        ("/none", None),
    ],
)
def test_a_pointer_picks_a_part(pointer, result):
    body = {"data": {"items": ["a", "b"], "a/b": {"~": 7}}, "none": None}
    response = fetched(json.dumps(body).encode(), "text/plain")
    assert result_of(response, ReadOptions(pointer=pointer)) == result


@pytest.mark.parametrize(
    "pointer", ["/x", "/a/2", "/a/-1", "/a/b", "/s/0", "/", f"/a/{'1' * 5000}"]
)
def test_a_pointer_to_nothing_is_reported(pointer):
    response = fetched(b'{"a": [1, 2], "s": "text"}', "application/json")
    with pytest.raises(ToolError, match=f"has nothing at '{pointer}'"):
        result_of(response, ReadOptions(pointer=pointer))


def test_invalid_json_is_reported():
    with pytest.raises(ToolError, match="not JSON"):
        result_of(fetched(b"<p>"), ReadOptions(read_as="json"))


def test_text_stays_text_where_staff_want_it():
    response = fetched(b'{"a":1}', "application/json")
    assert result_of(response, ReadOptions(read_as="text")) == '{"a":1}'


def test_an_answer_without_a_body_is_an_answer():
    headers = {"etag": "7", "x-other": "no", "location": "/things/7"}
    result = result_of(fetched(status=201, headers=headers), ReadOptions())
    assert result.splitlines() == [
        "The server answered 201 Created, with no content.",
        "etag: 7",
        "location: /things/7",
    ]


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (fetched(b'{"error": "no such thing"}', "application/json", 404),
         'answered 404 Not Found: {"error": "no such thing"}'),
        (fetched(b"<style>x{}</style><h1>Oops</h1>\n<p>later</p>", "text/html", 500),
         "answered 500 Internal Server Error: Oops later"),
        (fetched(b"", "", 503), "answered 503 Service Unavailable."),
        (fetched(b"\0\xff", "image/png", 400), "answered 400 Bad Request."),
        (fetched(b"", "", 304), "answered 304 Not Modified."),
        (fetched(b"strange", "text/plain", 799), "answered 799: strange"),
    ],
)  # fmt: skip
def test_an_error_includes_the_servers_message(raw, expected):
    with pytest.raises(ToolError) as caught:
        result_of(raw, ReadOptions())
    assert str(caught.value) == f"the server {expected}"


def test_a_long_error_is_cut():
    with pytest.raises(ToolError) as caught:
        result_of(fetched(b"x" * 9999, "text/plain", 500), ReadOptions())
    assert len(str(caught.value)) < 500


def test_echoed_secrets_are_removed():
    secrets = texts_to_mask({"Authorization": "Bearer s3cret-token", "X-Short": "abc"})
    assert secrets == ["Bearer s3cret-token", "s3cret-token"]
    echo = fetched(b'{"token": "s3cret-token", "abc": 1}', "application/json")
    assert result_of(echo, ReadOptions(), secrets) == {"token": MASK, "abc": 1}
    echo = fetched(b"bad: s3cret-token", "text/plain", 401)
    with pytest.raises(ToolError) as caught:
        result_of(echo, ReadOptions(), secrets)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    "body",
    [
        rb'{"key": "s3/cret+a&b"}',
        rb'{"key": "s3\/cret+a&b"}',
        rb'{"key": "s3/cret\u002Ba\u0026b"}',
        rb'{"in JSON": "{\"key\": \"s3\\\/cret+a&b\"}"}',
        rb'["<p>s3/cret+a&amp;b</p>", "/?key=s3%2fcret%2Ba%26b"]',
    ],
)
def test_secrets_are_removed_however_they_are_escaped(body):
    for read_as in ("auto", "json", "text"):
        echo = fetched(body, "application/json")
        result = result_of(echo, ReadOptions(read_as=read_as), ["s3/cret+a&b"])
        assert "cret" not in str(result)
        assert MASK in str(result)


@pytest.mark.parametrize("secret", [r"s3\cret", r's3\\"cret"', r"\/" * 9 + "cret"])
def test_secrets_with_backslashes_are_removed_however_often_they_are_escaped(secret):
    text = secret
    for _ in range(3):
        echo = fetched(text.encode(), "text/plain")
        assert result_of(echo, ReadOptions(), [secret]) == MASK
        text = json.dumps(text)[1:-1]


def test_a_secret_is_removed_whose_backslash_stands_before_an_escaped_character():
    """As JSON of Go: the run of backslashes takes that of the escape too."""
    echo = fetched(rb'["tok\\\u0026secret1"]', "application/json")
    for read_as in ("auto", "json", "text"):
        result = result_of(echo, ReadOptions(read_as=read_as), [r"tok\&secret1"])
        assert "secret1" not in str(result)
        assert MASK in str(result)


def test_an_answer_of_backslashes_is_searched_in_linear_time():
    """A pattern that goes back would take hours."""
    secret = "\\" * 24 + "cret" + '\\"' * 24
    text = "\\" * 3000 + "cret" + '\\\\"' * 23
    assert (
        result_of(fetched(text.encode(), "text/plain"), ReadOptions(), [secret]) == text
    )


def test_secrets_are_removed_from_headers():
    echo = fetched(status=201, headers={"location": "/?key=s3%2Fcret", "etag": "a"})
    text = result_of(echo, ReadOptions(), ["s3/cret"])
    assert text.splitlines()[1:] == ["etag: a", f"location: /?key={MASK}"]


@pytest.mark.parametrize(
    ("header", "value", "masked"),
    [
        ("X-Note", "hello big world", ["hello big world"]),
        ("X-Key", "s3cret-key", ["s3cret-key"]),
        ("X-Api-Authorization", "Token s3cret-key", ["Token s3cret-key", "s3cret-key"]),
        ("authorization", "Splunk s3cret-key", ["Splunk s3cret-key", "s3cret-key"]),
        ("X-Auth", "GenieKey s3cret", ["GenieKey s3cret", "s3cret"]),
        ("X-Auth", "Key of letters", ["Key of letters", "of letters"]),
        ("X-Auth", "Hash aBcDeFgHiJkLm", ["Hash aBcDeFgHiJkLm", "aBcDeFgHiJkLm"]),
        ("Cookie", "a=1; sid=s3cret", ["a=1; sid=s3cret", "s3cret"]),
    ],
)
def test_only_credentials_are_masked_apart_from_their_scheme(header, value, masked):
    assert texts_to_mask({header: value}) == masked


# What is wrong before anybody calls


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("", "such as https://"),
        ("/things", "such as https://"),
        ("ftp://host/x", "such as https://"),
        ("https://host/a b", "such as https://"),
        ("https://[::1", "not a URL"),
        ("https://host:port/", "not a URL"),
        ("https://user:word@host/", "user and password"),
        ("https://host/#x", "the part after it"),
        ("https://{host}/", "in the path only"),
        ("https://host/?q={q}", "in the path only"),
        ("https://host/{a b}", "in the path only|name in braces|such as https"),
        ("https://host/{a-b}", "a name in braces|placeholder"),
        ("https://host/{id", "placeholder"),
        ("https://127.1/", "usual form"),
    ],
)
def test_an_unusable_address_is_reported(url, expected):
    (problem,) = url_problems(url)
    assert any(each in problem for each in expected.split("|"))


@pytest.mark.parametrize(
    "url", ["https://host/a/{id}/b?x=1", "http://localhost:9/{a}{b}", "http://10.0.0.1"]
)
def test_one_that_can_is_not(url):
    assert not list(url_problems(url))


SCHEMA = {
    "type": "object",
    "properties": {"id": {"type": "string"}, "q": {"type": "string"}},
    "required": ["id"],
}


@pytest.mark.parametrize(
    ("fields", "where", "expected"),
    [
        ({"url": f"{HOST}/{{nope}}"}, "url", "{nope} is not a property"),
        (
            {"url": f"{HOST}/{{q}}"},
            "parameters",
            "'q' is in the path: make it a required",
        ),
        ({"places": {"z": "query"}}, "places", "'z' is not a property"),
        ({"places": {"q": "path"}}, "places", "the path has no {q}"),
        ({"places": {"q": "body"}}, "places", "GET has no body"),
        ({"places": {"q": "header:Host"}}, "places", "'Host' is set by the server"),
        ({"places": {"q": "header:a b"}}, "places", "is not a valid header name"),
        ({"headers": {"X-Api-Key": "x"}}, "headers", "looks secret"),
        ({"headers": {"x-trace": "x"}}, "headers", "already a secret header"),
        (
            {"method": "POST", "places": {"q": "whole_body", "id": "body"}},
            "places",
            "no other argument can be in the body",
        ),
    ],
)
def test_contradictory_fields_are_reported(fields, where, expected):
    found = list(find_problems(definition(**fields), SCHEMA, ["X-Trace"]))
    assert [(name, True) for name, text in found if expected in text] == [(where, True)]


# Rows


@pytest.fixture
def make(db):
    def make(name: str = "things", **fields) -> Tool:
        of_tool = {
            key: fields.pop(key)
            for key in ("enabled", "timeout", "replay", "label")
            if key in fields
        }
        tool = Tool.objects.create(
            name=name, kind=Tool.Kind.HTTP, description="Things.", **of_tool
        )
        secrets = fields.pop("secrets", {})
        http = HttpTool(tool=tool, **{"url": f"{HOST}/things", **fields})
        http.set_secret_headers(secrets)
        http.full_clean()
        http.save()
        return Tool.objects.get(pk=tool.pk)

    return make


def test_a_row_is_a_tool(make, django_assert_num_queries):
    for number in range(3):
        make(f"things_{number}", parameters=SCHEMA, secrets={"X-Key": "planted-key"})
    make("off", enabled=False)
    user = User.objects.create_user("ada")
    with django_assert_num_queries(1):
        found = Tool.objects.available(user)
    assert [name for name in found if name.startswith("things")] == [
        "things_0",
        "things_1",
        "things_2",
    ]
    assert "off" not in found
    tool = found["things_0"]
    assert tool.definition["description"] == "Things."
    assert tool.definition["parameters"] == SCHEMA
    assert "planted" not in repr(tool)


def test_a_row_without_a_request_is_no_tool(db):
    Tool.objects.create(name="empty", kind=Tool.Kind.HTTP, description="Nothing.")
    assert "empty" not in Tool.objects.available(None)


def test_sync_leaves_http_tools_alone(make):
    row = make()
    Tool.objects.sync()
    row.refresh_from_db()
    assert not row.is_missing


@pytest.mark.parametrize(
    ("method", "replay", "sends_key"),
    [
        ("GET", "safe", False),
        ("HEAD", "safe", False),
        ("PUT", "idempotent", True),
        ("DELETE", "idempotent", True),
        ("POST", "once", False),
        ("PATCH", "once", False),
    ],
)
def test_the_method_determines_whether_a_crash_repeats_the_call(
    make, method, replay, sends_key
):
    tool = make(method=method).build_tool()
    assert tool.replay == replay
    assert tool.call.sends_key == sends_key


def test_staff_have_the_last_word(make):
    row = make(method="POST", replay="idempotent", timeout=2.5, label="Mine")
    tool = row.build_tool()
    assert (tool.replay, tool.timeout, tool.label) == ("idempotent", 2.5, "Mine")
    assert tool.call.sends_key
    assert tool.call.limits.total == 2.5


def test_an_http_tool_requires_a_description(db):
    with pytest.raises(ValidationError, match="Describe for the model"):
        Tool(name="mute", kind=Tool.Kind.HTTP).full_clean()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("url", "ftp://host/"),
        ("parameters", {"type": "array"}),
        ("parameters", {"type": "object", "properties": {"a": {"type": "txt"}}}),
        ("places", [1]),
        ("places", {"a": "elsewhere"}),
        ("headers", [1]),
        ("headers", {"Host": "x"}),
        ("headers", {"X": 1}),
        ("pointer", "data"),
        ("max_size", 0),
        ("max_size", 10**9),
        ("networks", "10.0.0.1/8"),
        ("networks", "inside"),
        ("method", "TRACE"),
    ],
)
def test_an_invalid_definition_is_not_saved(db, field, value):
    http = HttpTool(**{"url": f"{HOST}/things", field: value})
    with pytest.raises(ValidationError) as caught:
        http.full_clean(exclude=["tool"])
    assert set(caught.value.message_dict) == {field}


@pytest.mark.parametrize("waits", [True, False, None])
def test_a_tool_that_waits_has_no_callback_url(db, waits):
    """Only calls in the background have one."""
    tool = Tool.objects.create(name="things", kind=Tool.Kind.HTTP, blocking=waits)
    http = HttpTool(tool=tool, url=f"{HOST}/things", async_answers=True)
    http.full_clean()
    http.callback_place = "header:X-Callback-URL"
    if not waits:
        http.full_clean()
        return
    with pytest.raises(ValidationError) as caught:
        http.full_clean()
    assert set(caught.value.message_dict) == {"callback_place"}


def test_an_empty_schema_is_an_object(db):
    http = HttpTool(url=f"{HOST}/things", headers=[], places=None)
    http.full_clean(exclude=["tool"])
    assert (http.headers, http.places) == ({}, {})


def test_secret_headers_are_encrypted_and_merged():
    assert HttpTool._meta.get_field("secret_headers") in list_encrypted_fields()
    http = HttpTool(url=HOST)
    http.set_secret_headers({"Authorization": "Bearer one", "X-Key": "two"})
    http.set_secret_headers({"authorization": "Bearer three", "X-Key": ""})
    assert http.secret_names == ["authorization"]
    assert "three" not in http.secret_headers.stored
    assert json.loads(http.secret_headers.reveal()) == {"authorization": "Bearer three"}
    http.set_secret_headers({"authorization": ""})
    assert (http.secret_names, http.secret_headers) == ([], "")


def test_secrets_whose_key_is_lost_are_entered_anew(settings):
    http = HttpTool(url=HOST)
    http.set_secret_headers({"Authorization": "Bearer one"})
    settings.ENCRYPTION_KEYS = [Fernet.generate_key().decode()]
    http.set_secret_headers({"X-Key": "two"})
    assert http.secret_names == ["X-Key"]


# Calls, to a real server


async def outcome(tool, /, **arguments):
    context = Context(turn_id="t1")
    calls = [call(tool.name, **arguments)]
    *_, last = [each async for each in execute(calls, {tool.name: tool}, context)]
    return last


def http_tool(url: str, **fields):
    row = Tool(
        name="things",
        kind=Tool.Kind.HTTP,
        description="Things.",
        replay=fields.pop("replay", ""),
        timeout=fields.pop("timeout", None),
    )
    secrets = fields.pop("secrets", {})
    fields.setdefault("networks", "127.0.0.0/8")
    fields.setdefault("parameters", SCHEMA)
    http = HttpTool(tool=row, url=url, **fields)
    http.set_secret_headers(secrets)
    return row.build_tool()


async def test_a_call_is_a_request_and_its_answer_the_output():
    async with serving(ok(b'{"data": ["a"]}', "application/json")) as server:
        tool = http_tool(
            server.url("/things/{id}"),
            pointer="/data",
            secrets={"Authorization": "Bearer planted-key"},
        )
        result = await outcome(tool, id="a b", q="x")
    assert (result.state, result.output) == ("completed", '["a"]')
    assert server.requests[0].startswith("GET /things/a%20b?q=x HTTP/1.1\r\n")
    assert "Authorization: Bearer planted-key\r\n" in server.requests[0]


async def test_a_body_and_a_key_are_sent():
    async with serving(answer("204 No Content")) as server:
        tool = http_tool(server.url("/things/{id}"), method="PUT")
        result = await outcome(tool, id="7", q="x")
    assert result.output == "The server answered 204 No Content, with no content." + (
        "\ncontent-length: 0"
    )
    assert server.bodies == [b'{"q":"x"}']
    assert "Idempotency-Key: t1:c1\r\n" in server.requests[0]


async def test_only_idempotent_calls_have_a_key():
    async with serving(ok()) as server:
        await outcome(http_tool(server.url("/{id}")), id="7")
        await outcome(http_tool(server.url("/{id}"), method="POST"), id="7")
    assert "idempotency-key" not in "".join(server.requests).lower()


async def test_an_error_status_is_a_failed_call():
    body = b'{"error": "no such thing"}'
    raw = answer("404 Not Found", body, "Content-Type: application/json")
    async with serving(raw) as server:
        result = await outcome(http_tool(server.url("/{id}")), id="7")
    assert result.state == "failed"
    assert result.output == (
        'Error: the server answered 404 Not Found: {"error": "no such thing"}'
    )


@pytest.mark.timeout(60)  # of a megabyte, an hour if it is scanned for each tag
@pytest.mark.parametrize("unit", [b"<script>", b"<style ", b"<", b"<b>"])
async def test_an_error_page_made_to_be_slow_is_an_error_like_any_other(unit: bytes):
    page = b"Sorry. " + unit * (1_000_000 // len(unit))
    raw = answer("500 Oops", page, "Content-Type: text/html")
    async with serving(raw) as server:
        result = await outcome(http_tool(server.url("/{id}")), id="7")
    assert result.state == "failed"
    assert result.output.startswith(
        "Error: the server answered 500 Internal Server Error: Sorry."
    )
    assert len(result.output) < 500


@pytest.mark.timeout(60)
@pytest.mark.parametrize("charset", ["punycode", "idna", "unicode_escape", "hex"])
async def test_an_encoding_of_no_page_is_read_as_utf_8(charset: str):
    page = "é".encode() + b"-" + b"a" * 500_000
    raw = answer("200 OK", page, f"Content-Type: text/plain; charset={charset}")
    async with serving(raw) as server:
        result = await outcome(http_tool(server.url("/{id}")), id="7")
    assert (result.state, result.output[:3]) == ("completed", "é-a")


async def test_json_of_too_many_values_is_no_json_but_text():
    body = b"[" + b"[]," * 300_000 + b"0]"
    raw = answer("200 OK", body, "Content-Type: application/json")
    async with serving(raw) as server:
        result = await outcome(http_tool(server.url("/{id}")), id="7")
        pointed = await outcome(http_tool(server.url("/{id}"), pointer="/0"), id="7")
    assert result.state == "completed"
    assert result.output.startswith("[[],[],")
    assert pointed.state == "failed"
    assert "it has more than 250,000 values" in pointed.output


async def test_arguments_are_checked_before_anything_is_sent():
    async with serving(ok()) as server:
        result = await outcome(http_tool(server.url("/{id}")), id=7)
    assert result.state == "failed"
    assert "at id" in result.output
    assert server.requests == []


async def test_no_network_is_open_by_itself(caplog):
    async with serving(ok()) as server:
        tool = http_tool(server.url("/{id}"), networks="")
        with caplog.at_level(logging.INFO, "tools"):
            result = await outcome(tool, id="7")
    assert result.state == "failed"
    assert "private or reserved network" in result.output
    assert "allow its network for this tool" in caplog.text
    assert "127.0.0.1" not in caplog.text + result.output + result.error


async def test_a_redirect_leads_no_further_than_the_tool_may_go():
    async with serving(redirect("http://10.0.0.1/")) as server:
        result = await outcome(http_tool(server.url("/{id}")), id="7")
    assert result.state == "failed"
    assert "not allowed" in result.output


async def test_a_large_answer_is_refused():
    async with serving(ok(b"x" * 101)) as server:
        result = await outcome(http_tool(server.url("/{id}"), max_size=100), id="7")
    assert result.output == "Error: the answer is larger than 100 bytes."


async def test_a_slow_server_times_the_call_out():
    async def hang(reader, writer):
        await reader.read()

    async with serving(hang) as server:
        result = await outcome(http_tool(server.url("/{id}"), timeout=0.1), id="7")
    assert result.state == "timed_out"


async def test_undecryptable_secrets_are_reported(settings):
    tool = http_tool("http://127.0.0.1:9/{id}", secrets={"X-Key": "planted"})
    settings.ENCRYPTION_KEYS = [Fernet.generate_key().decode()]
    result = await outcome(tool, id="7")
    assert "secret headers of this tool cannot be decrypted" in result.output


async def test_neither_words_nor_secrets_are_logged(caplog):
    async with serving(ok(b"planted-answer")) as server:
        tool = http_tool(server.url("/{id}"), secrets={"X-Key": "planted-key"})
        with caplog.at_level(logging.DEBUG):
            await outcome(tool, id="planted-words")
    assert "planted" not in caplog.text
    assert "planted" not in repr(tool)
    assert isinstance(tool.call.secret_headers, Secret)
