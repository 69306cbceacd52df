from __future__ import annotations

import json

import pytest
from django.core.management import call_command
from django.urls import reverse

from tools.errors import InvalidDocument
from tools.http.openapi import MAX_NAME, OpenApiOperation, read_operations
from tools.http.openapi_document import read_document
from tools.http.openapi_schema import MAX_NODES
from tools.http.request_template import RequestTemplate, build_request
from tools.http.validation import find_problems, parse_locations
from tools.json_schema.arguments import check
from tools.json_schema.examples import example_of
from tools.json_schema.provider_support import find_refusals
from tools.models import Tool
from tools.registry import NAME

SERVER = "https://api.test/v1"

PETS = """
openapi: 3.0.3
info: {title: Pets, version: 2026-01-31}
servers:
  - url: https://{region}.api.test/v1/
    variables: {region: {default: eu}}
security: [{key: []}]
paths:
  /pets/{pet-id}:
    parameters:
      - {name: pet-id, in: path, required: true, schema: {type: integer}}
      - {name: X-Trace, in: header, schema: {type: string}}
    get:
      operationId: getPet
      summary: Look up a pet
      description: By its number.
      parameters:
        - {name: fields, in: query, explode: false,
           schema: {type: array, items: {type: string}}, description: What to tell.}
        - {name: filter, in: query, style: deepObject, schema: {type: object}}
        - {name: Accept, in: header, schema: {type: string}}
        - {name: session, in: cookie, schema: {type: string}}
        - $ref: '#/components/parameters/Limit'
    put:
      requestBody: {$ref: '#/components/requestBodies/Pet'}
    delete:
      operationId: getPet
      deprecated: true
  /pets:
    post:
      operationId: 2 add/pets!
      requestBody:
        required: true
        content:
          text/csv: {}
          application/x-www-form-urlencoded:
            schema: {type: object, properties: {on: {type: string, example: yes}}}
components:
  securitySchemes:
    key: {type: apiKey, in: header, name: X-Key}
  parameters:
    Limit: {name: limit, in: query,
            schema: {type: integer, minimum: 0, exclusiveMinimum: true}}
  requestBodies:
    Pet:
      required: true
      content:
        application/json: {schema: {$ref: '#/components/schemas/Pet'}}
  schemas:
    Named:
      type: object
      required: [name]
      properties:
        name: {type: string, nullable: true, xml: {name: n}, example: Rex}
    Pet:
      allOf:
        - $ref: '#/components/schemas/Named'
        - type: object
          required: [born, pet-id]
          properties:
            pet-id: {type: integer}
            born: {type: string, format: date}
            id: {type: integer, readOnly: true}
            parent: {$ref: '#/components/schemas/Pet'}
"""


def document(**paths) -> dict:
    return {
        "openapi": "3.1.0",
        "servers": [{"url": SERVER}],
        "paths": {f"/{name}": item for name, item in paths.items()},
    }


def posting(schema: dict, media: str = "application/json", **more) -> dict:
    body = {"required": True, "content": {media: {"schema": schema}}}
    return {**document(x={"post": {"requestBody": body}}), **more}


def only(source: dict) -> OpenApiOperation:
    (operation,) = read_operations(source)
    return operation


@pytest.fixture(scope="module")
def pets() -> dict[str, OpenApiOperation]:
    return {each.key: each for each in read_operations(read_document(PETS))}


def test_an_operation_has_an_address_a_name_and_a_description(pets):
    get = pets["GET /pets/{pet-id}"]
    assert get.problem == ""
    assert get.url == "https://eu.api.test/v1/pets/{pet_id}"
    assert (get.method, get.name, get.summary) == ("GET", "getPet", "Look up a pet")
    assert get.description == "Look up a pet\n\nBy its number."


def test_parameters_become_arguments_in_their_places(pets):
    get = pets["GET /pets/{pet-id}"]
    assert get.places == {
        "pet_id": "path",
        "X_Trace": "header:X-Trace",
        "fields": "query_commas",
        "filter": "query_deep",
        "limit": "query",
    }
    assert get.parameters["required"] == ["pet_id"]
    properties = get.parameters["properties"]
    assert properties["fields"]["description"] == "What to tell."
    assert properties["limit"] == {"type": "integer", "exclusiveMinimum": 0}


def test_omissions_are_noted(pets):
    assert pets["GET /pets/{pet-id}"].notes == (
        "The cookie 'session' is never sent.",
        "It expects a key in the header X-Key.",
    )
    assert "It is deprecated." in pets["DELETE /pets/{pet-id}"].notes


def test_a_body_becomes_arguments_too(pets):
    put = pets["PUT /pets/{pet-id}"]
    assert put.name == "PUT_pets_pet-id"
    assert put.places == {
        "pet_id": "path",
        "X_Trace": "header:X-Trace",
        "name": "body",
        "pet_id_body": "body:pet-id",
        "born": "body",
        "parent": "body",
    }
    assert put.parameters["required"] == ["pet_id", "name", "pet_id_body", "born"]
    properties = put.parameters["properties"]
    assert properties["name"] == {"type": ["string", "null"], "examples": ["Rex"]}
    assert properties["parent"] == {"$ref": "#/$defs/Pet"}
    assert "id" not in put.parameters["$defs"]["Pet"]["allOf"][1]["properties"]


def test_yaml_is_read_as_people_mean_it(pets):
    post = pets["POST /pets"]
    assert post.name == "_2_add_pets"
    assert post.body == "form"
    assert post.parameters["properties"] == {
        "on": {"type": "string", "examples": ["yes"]}
    }


def test_names_are_taken_once(pets):
    assert pets["DELETE /pets/{pet-id}"].name == "getPet_2"


def test_every_operation_can_be_called(pets):
    for operation in pets.values():
        read, wrong = parse_locations(operation.places)
        assert not wrong
        definition = RequestTemplate(
            method=operation.method,
            url=operation.url,
            headers=operation.headers,
            arguments=operation.parameters["properties"],
            locations=read,
        )
        assert not list(find_problems(definition, operation.parameters))
        example = example_of(operation.parameters)
        check(operation.parameters, example)
        assert "{" not in build_request(definition, example).url
        find_refusals(operation.parameters)


@pytest.mark.parametrize("name", ["a" * 99, "ü", "7", "a.b/c", "", "-x-"])
def test_any_name_becomes_one_that_every_provider_takes(name):
    source = document(
        x={"get": {"operationId": name}}, y={"get": {"operationId": name}}
    )
    names = [each.name for each in read_operations(source)]
    assert all(NAME.match(each) and len(each) <= MAX_NAME for each in names)
    assert len(set(names)) == 2


@pytest.mark.parametrize(
    ("source", "base", "url"),
    [
        ("https://a.test/v1/", "", "https://a.test/v1/x"),
        ("https://a.test/v1", "https://b.test/v2/", "https://b.test/v2/x"),
        ("/api/v3", "https://b.test", "https://b.test/api/v3/x"),
        ("/", "https://b.test/v2", "https://b.test/v2/x"),
        (None, "https://b.test/v2", "https://b.test/v2/x"),
    ],
)
def test_the_address_is_the_documents_unless_staff_know_better(source, base, url):
    made = document(x={"get": {}})
    made["servers"] = [{"url": source}] if source else []
    assert read_operations(made, base)[0].url == url


def test_the_nearest_server_counts():
    item = {"get": {"servers": [{"url": "https://own.test"}]}}
    assert only(document(x=item)).url == "https://own.test/x"


@pytest.mark.parametrize(
    ("schema", "media", "places", "headers"),
    [
        ({"type": "array", "items": {}}, "application/json", "whole_body", {}),
        ({"anyOf": [{"type": "object"}]}, "application/json", "whole_body", {}),
        ({"type": "object"}, "application/json", "whole_body", {}),
        ({}, "*/*", "whole_body", {}),
        (
            {"type": "object"},
            "application/merge-patch+json",
            "whole_body",
            {"Content-Type": "application/merge-patch+json"},
        ),
        ({}, "text/plain", "whole_body", {"Content-Type": "text/plain"}),
    ],
)
def test_a_body_without_named_fields_is_one_argument(schema, media, places, headers):
    operation = only(posting(schema, media))
    assert operation.problem == ""
    assert (operation.places, operation.headers) == ({"body": places}, headers)
    assert operation.parameters["required"] == ["body"]


@pytest.mark.parametrize(
    ("source", "why"),
    [
        (posting({}, "multipart/form-data"), "multipart/form-data, which is not"),
        (posting({"$ref": "other.yaml#/x"}), "another document, 'other.yaml#/x'"),
        (posting({"$ref": "https://x.test/y"}), "another document"),
        (posting({"$ref": "#/components/none"}), "which does not exist"),
        (posting({"$ref": f"#/servers/{'1' * 5000}"}), "which does not exist"),
        (posting({"$ref": "#/a", }, a={"$ref": "#/a"}), "are circular"),
        (posting({"type": "array", "items": {"type": "txt"}}), "its schema is wrong"),
        (posting({"type": "array", "items": 7}), "one of its schemas is not an object"),
        (posting({}, "application/x-www-form-urlencoded"), "no named fields"),
        (document(x={"get": {"parameters": [
            {"name": "s", "in": "cookie", "required": True}]}}), "needs the cookie"),
        (document(x={"get": {"parameters": [{"name": "s"}]}}), "not valid OpenAPI"),
        (document(x={"get": {"parameters": {"a": 1}}}), "not valid OpenAPI"),
        ({**document(x={"get": {}}), "servers": []}, "enter the address of the API"),
        (
            {**document(x={"get": {}}), "servers": [{"url": "//"}]},
            "enter the address of the API",
        ),
        ({**document(x={"get": {}}), "servers": [{"url": "ftp://x"}]}, "be used"),
    ],
)  # fmt: skip
def test_an_operation_that_cannot_be_a_tool_is_explained(source, why):
    assert why in only(source).problem


def test_an_optional_body_of_an_unknown_kind_is_left_out():
    source = posting({}, "application/xml")
    source["paths"]["/x"]["post"]["requestBody"]["required"] = False
    operation = only(source)
    assert operation.problem == ""
    assert "No body is sent" in operation.notes[0]


def test_a_schema_that_grows_without_end_is_refused():
    """Each line of YAML doubles it: "a billion laughs"."""
    lines = ["a0: &a0 {type: string}"]
    lines += [
        f"a{n}: &a{n} {{type: array, prefixItems: [*a{n - 1}, *a{n - 1}]}}"
        for n in range(1, 30)
    ]
    text = "\n".join([
        "openapi: 3.1.0", f"servers: [{{url: {SERVER}}}]", *lines,
        "paths: {/x: {post: {requestBody: {content: {application/json:"
        " {schema: *a29}}}}}}",
    ])  # fmt: skip
    with pytest.raises(InvalidDocument, match="more than 250,000 values"):
        read_document(text)
    wide = {"type": "array", "prefixItems": [{}] * MAX_NODES}
    assert "too large" in only(posting(wide)).problem


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "not an OpenAPI document"),
        ("hello", "not an OpenAPI document"),
        ("[1]", "not an OpenAPI document"),
        ("{", "cannot be read"),
        ("a: [", "cannot be read"),
        ("a: !!python/object:os.system {}", "cannot be read"),
        ("{" * 5000, "cannot be read"),
        ('{"swagger": "2.0"}', "Swagger 2"),
        ('{"openapi": "2.0"}', "'openapi' is missing"),
        ('{"openapi": "3.0.0"}', "no paths"),
        ("openapi: 3.0.0\npaths: []", "no paths"),
    ],
)
def test_a_text_that_is_no_document_is_explained(text, why):
    with pytest.raises(InvalidDocument, match=why):
        read_document(text)


def test_a_date_in_yaml_is_a_text():
    assert read_document(PETS)["info"]["version"] == "2026-01-31"


@pytest.mark.slow
@pytest.mark.smoke
def test_our_own_api_can_be_imported(tmp_path):
    """A document that no person has written."""
    path = tmp_path / "own.yaml"
    call_command("spectacular", file=str(path))
    found = read_operations(read_document(path.read_text()), "http://127.0.0.1:8000")
    assert len(found) > 5
    assert [each.key for each in found if each.problem] == []


# In the admin

IMPORT = reverse("admin:tools_tool_import")


def picked(*keys: str, **fields) -> dict:
    return {
        "document": PETS,
        "base_url": "",
        "_import": "Import",
        "operations": keys,
        **fields,
    }


@pytest.mark.django_db
def test_a_document_is_read_and_its_operations_are_picked(admin_client):
    assert "Or paste its text" in admin_client.get(IMPORT).content.decode()
    page = admin_client.post(IMPORT, {"document": PETS}).content.decode()
    assert page.count('name="operations"') == 4
    assert "It expects a key in the header X-Key." in page
    keys = ["GET /pets/{pet-id}", "PUT /pets/{pet-id}"]
    secret = {"secret": "X-Key: planted-key"}
    response = admin_client.post(IMPORT, picked(*keys, **secret), follow=True)
    assert "2 tools imported. They are switched off" in response.content.decode()
    rows = Tool.objects.filter(kind="http").select_related("http")
    assert [row.name for row in rows] == ["PUT_pets_pet-id", "getPet"]
    assert not any(row.enabled for row in rows)
    assert rows[1].http.secret_names == ["X-Key"]
    secret = json.loads(rows[1].http.secret_headers.reveal())
    assert secret == {"X-Key": "planted-key"}


@pytest.mark.django_db
def test_a_document_may_be_uploaded(admin_client, tmp_path):
    path = tmp_path / "pets.yaml"
    path.write_text(PETS)
    with path.open() as file:
        page = admin_client.post(IMPORT, {"file": file}).content.decode()
    assert page.count('name="operations"') == 4


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ({}, "Choose a file, or paste its text."),
        ({"document": "hello"}, "This is not an OpenAPI document."),
        ({"document": PETS, "base_url": "here"}, "such as https://host/"),
        (picked(), "Choose at least one operation."),
        (picked("GET /other"), "is not one of the available choices"),
        (picked("POST /pets", secret="planted-key"), "Line 1: write a name, a colon"),
        (picked("POST /pets", networks="planted"), "does not appear to be"),
    ],
)
def test_a_mistake_is_reported_and_nothing_is_created(admin_client, source, expected):
    page = admin_client.post(IMPORT, source).content.decode()
    assert expected in page
    assert "planted-key" not in page
    assert not Tool.objects.filter(kind="http").exists()


@pytest.mark.django_db
def test_a_name_that_is_taken_is_not_taken_again(admin_client):
    Tool.objects.create(name="getPet", kind="http", description="Mine.")
    page = admin_client.post(IMPORT, {"document": PETS}).content.decode()
    assert "there is already a tool with this name." in page
    page = admin_client.post(IMPORT, picked("GET /pets/{pet-id}")).content.decode()
    assert "is not one of the available choices" in page


@pytest.mark.django_db
def test_staff_who_may_not_add_tools_cannot_import(client, django_user_model):
    client.force_login(django_user_model.objects.create_user("ada", is_staff=True))
    assert client.get(IMPORT).status_code == 403
    assert client.post(IMPORT, picked("POST /pets")).status_code == 403


def aliases(name: str, value: str) -> str:
    """Nine lines of YAML, each of which names the one before ten times."""
    return "\n".join(
        f"{name}{n}: &{name}{n} " + value.format(", ".join([f"*{name}{n - 1}"] * 10))
        for n in range(1, 10)
    )


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        ("a: [" * 1_000_000, "nested more than 200 levels deep"),
        ("a: " + "[" * 5_000 + "]" * 5_000, "nested more than 200 levels deep"),
        ("a: [" + "1," * 300_000 + "1]", "more than 250,000 values"),
        ('{"a": [' + "[]," * 300_000 + "1]}", "more than 250,000 values"),
        ("m0: &m0 {a: 1}\n" + aliases("m", "{{<<: [{}]}}"), "250,000 values"),
        ("m0: &m0 [1]\n" + aliases("m", "[{}]"), "250,000 values"),
        ("a: &a [*a]", "250,000 values"),
    ],
)
def test_a_document_made_to_be_slow_or_deep_is_refused(document: str, problem: str):
    with pytest.raises(InvalidDocument, match=problem):
        read_document(document)


def test_a_merge_key_is_followed():
    text = "openapi: 3.1.0\npaths: {}\na: &a {x: 1, y: 2}\nb: {<<: *a, y: 3}"
    assert read_document(text)["b"] == {"x": 1, "y": 3}


def test_what_cannot_be_stored_is_replaced():
    text = '{"openapi": "3.1.0", "paths": {}, "d": "x\\ud83d y\\u0000"}'
    assert read_document(text)["d"] == "x\ufffd y\ufffd"


def test_a_body_of_schemas_that_merge_one_another_twice_is_refused():
    schemas = {f"A{n}": {"allOf": [{"$ref": f"#/s/A{n + 1}"}] * 2} for n in range(40)}
    source = posting(
        {"$ref": "#/s/A0"}, s={**schemas, "A40": {"properties": {"a": {}}}}
    )
    assert "too large" in only(source).problem


@pytest.mark.parametrize(
    "more",
    [
        {"security": {"a": []}},
        {"security": True},
        {"security": [{"a": []}], "components": ["x"]},
        {"security": [{"a": []}], "components": {"securitySchemes": "x"}},
    ],
)
def test_an_ill_formed_part_of_the_document_is_a_problem_of_operations(more):
    assert "not valid OpenAPI" in only({**posting({}), **more}).problem


def test_names_of_other_scripts_are_told_apart():
    names = ["名前", "年齢", "住所", "a-b", "a.b", "a b"]
    schema = {"properties": {n: {"type": "string"} for n in names}, "required": names}
    operation = only(posting({"type": "object", **schema}))
    assert operation.problem == ""
    sent = {place.partition(":")[2] for place in operation.places.values()}
    assert sent == set(names)
    assert len(operation.parameters["required"]) == len(names)
    texts = [
        each.get("description") for each in operation.parameters["properties"].values()
    ]
    assert texts == ["名前", "年齢", "住所", None, None, None]


def test_required_fields_of_an_optional_body_stay_required():
    source = posting({"properties": {"n": {}, "m": {}}, "required": ["n"]})
    del source["paths"]["/x"]["post"]["requestBody"]["required"]
    assert only(source).parameters["required"] == ["n"]


@pytest.mark.parametrize(
    ("parameter", "place"),
    [
        ({"in": "query", "style": "pipeDelimited", "schema": {"type": "array"}}, ""),
        ({"in": "query", "style": "spaceDelimited", "schema": {"type": "array"}}, ""),
        ({"in": "query", "schema": {"type": "object"}}, ""),
        ({"in": "query", "explode": False, "schema": {"type": "object"}}, ""),
        ({"in": "header", "schema": {"type": "object"}}, ""),
        ({"in": "query", "style": "deepObject", "schema": {"type": "object"}}, "deep"),
        ({"in": "query", "content": {"application/json": {}}}, "query"),
        ({"in": "query", "schema": {"type": "array"}}, "query"),
    ],
)
def test_a_style_that_cannot_be_sent_is_named(parameter, place):
    get = {"parameters": [{"name": "p", **parameter}]}
    operation = only(document(x={"get": get}))
    assert place in operation.places.get("p", "")
    assert bool(operation.places) is bool(place)
    assert ("is left out: its style" in " ".join(operation.notes)) is not bool(place)
    get["parameters"][0]["required"] = True
    assert ("has the style" in only(document(x={"get": get})).problem) is not bool(
        place
    )


@pytest.mark.parametrize("style", ["matrix", "label"])
def test_a_path_in_another_style_is_refused(style):
    get = {"parameters": [{"name": "p", "in": "path", "style": style, "schema": {}}]}
    assert f"the style '{style}'" in only(document(**{"x/{p}": {"get": get}})).problem


def test_what_a_body_loses_and_a_key_are_noted():
    schema = {"properties": {"a": {}}, "additionalProperties": {"type": "string"}}
    source = posting(schema, security=[{"k": []}])
    scheme = {"type": "apiKey", "in": "header", "name": "X-Api-Key"}
    source["components"] = {"securitySchemes": {"k": scheme}}
    key = {"name": "x-api-key", "in": "header", "required": True, "schema": {}}
    source["paths"]["/x"]["post"]["parameters"] = [key]
    operation = only(source)
    assert operation.places == {"a": "body"}
    assert operation.notes == (
        "Fields of its body without a name are left out.",
        "It expects a key in the header X-Api-Key.",
    )


def test_a_percent_encoded_reference_is_followed():
    ref = {"$ref": "#/paths/~1u~1%7Bid%7D/get/parameters/0"}
    own = {"name": "id", "in": "path", "required": True, "schema": {"type": "integer"}}
    get = {"parameters": [own]}
    source = document(
        **{"u/{id}": {"get": get}, "v/{id}": {"get": {"parameters": [ref]}}}
    )
    assert [each.places for each in read_operations(source)] == [{"id": "path"}] * 2


@pytest.mark.parametrize(
    ("ref", "why"),
    [("./u.yaml", "another document"), ("#/components/pathItems/u", "does not exist")],
)
def test_a_path_that_lies_elsewhere_is_listed(ref, why):
    source = document(u={"$ref": ref}, x={"get": {}})
    found = {each.key: each.problem for each in read_operations(source)}
    assert found["GET /x"] == ""
    assert why in found["/u"]
