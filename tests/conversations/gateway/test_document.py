"""Whatever is asked, the server answers as the API's document has it.

schemathesis makes the requests from the document, good ones and bad ones, and asks a
real server with the demo behind it: no fault of ours, no status, type, header or body
that is not in the document, nothing taken that it does not allow. To look longer than
there is time for here, see docs/gateway.md.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import CHECKS, load_all_checks
from schemathesis.core.failures import FailureGroup

from tests.conversations.gateway.programs import FAST, PATIENCE, Gateway

FEW = settings(
    max_examples=5,
    derandomize=True,
    database=None,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
#: A body may be well formed and make no sense all the same: no such model, an output
#: without a call. The document cannot say so.
UNCHECKED = ("positive_data_acceptance",)

load_all_checks()


@dataclass(frozen=True)
class Door:
    """The server, and rows that requests can be about."""

    gateway: Gateway
    ids: dict[str, str]


@pytest.fixture(scope="module")
def door(gateway: Gateway) -> Door:
    kept = gateway.respond("Reply with exactly: hi")
    ids = {"response_id": kept["id"], "name": FAST}
    with gateway.http() as http:
        api = f"{gateway.server.url}/api"
        conversation = http.post(f"{api}/conversations/", json={}).json()["id"]
        path = f"{api}/conversations/{conversation}"
        turn = http.post(f"{path}/turns/", json={"input": "hi", "wait": True}).json()
        files = {"file": ("a.txt", b"hello", "text/plain")}
        sent = http.post(f"{path}/attachments/", files=files).json()
    ids |= {"conversations": conversation, "turns": turn["id"]}
    return Door(gateway, {**ids, "attachments": sent["data"][0]["id"]})


@pytest.fixture(scope="module")
def document(gateway: Gateway) -> Any:
    address = f"{gateway.server.url}/api/schema/?format=json"
    with gateway.http() as http:
        return http.get(address).json()


def operations(document: Any, door: Door) -> list[Any]:
    schema = schemathesis.openapi.from_dict(document)
    schema.config.update(base_url=door.gateway.server.url)
    return [found.ok() for found in schema.get_all_operations()]


@pytest.mark.parametrize("mode", GenerationMode)
def test_the_server_answers_as_its_document_says(
    door: Door, document: Any, mode: GenerationMode
):
    found = operations(document, door)
    assert len(found) > 30
    wrong = [told for each in found if (told := probed(each, door, mode))]
    assert not wrong, "\n\n".join(wrong)


@pytest.mark.parametrize("untold", ["a status", "a header", "a field"])
def test_what_the_document_does_not_tell_is_found(
    door: Door, document: Any, untold: str
):
    told = copy.deepcopy(document)
    place = told["paths"]["/v1/models/{name}"]["get"]
    told["paths"] = {"/v1/models/{name}": {"get": place}}
    if untold == "a status":
        del place["responses"]["200"]
    elif untold == "a field":
        told["components"]["schemas"]["OpenAIModel"]["properties"]["id"] = False
        told["components"]["schemas"]["AnthropicModel"]["properties"]["id"] = False
    else:
        missing = {"x-never": {"required": True, "schema": {"type": "string"}}}
        place["responses"]["200"]["headers"] = missing
    [operation] = operations(told, door)
    assert probed(operation, door, GenerationMode.POSITIVE)


def probed(operation: Any, door: Door, mode: GenerationMode) -> str:
    """What is wrong with an operation's answers."""
    headers = {"Authorization": f"Bearer {door.gateway.token}"}
    excluded = CHECKS.get_by_names(UNCHECKED)

    @FEW
    @given(case=operation.as_strategy(generation_mode=mode))
    def ask(case: schemathesis.Case) -> None:
        about_what_there_is(case, door.ids)
        case.call_and_validate(
            headers=headers, excluded_checks=excluded, timeout=PATIENCE
        )

    try:
        ask()
    except FailureGroup as exc:
        return f"{operation.label}: {exc.exceptions}"
    except Unsatisfiable:
        pass  # nothing can be wrong with a request that has nothing in it
    return ""


def about_what_there_is(case: schemathesis.Case, ids: dict[str, str]) -> None:
    """Names of rows, where a request has made some up that could be names."""
    body = case.body
    if isinstance(body, dict) and body.get("model") and isinstance(body["model"], str):
        body["model"] = FAST
    if case.method == "DELETE":
        return  # they are needed
    for name in case.path_parameters or {}:
        key = name if name in ids else case.path.split("/")[2]
        if key in ids:
            case.path_parameters[name] = ids[key]
