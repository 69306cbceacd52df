"""The server's responses match the OpenAPI document, whatever the request.

schemathesis makes the requests from the document, good ones and bad ones, and sends
them to a real server with the demo behind it: no internal error, no status, type,
header or body that is not in the document, nothing taken that it does not allow. To
look longer than there is time for here, see docs/gateway.md.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import CHECKS, load_all_checks
from schemathesis.core.failures import FailureGroup

from tests.integration.gateway.programs import FAST, PATIENCE, Gateway
from tests.serving import ServerProcess

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
class ServerRows:
    """The server, and rows that requests can be about."""

    gateway: Gateway
    ids: dict[str, str]


@pytest.fixture(scope="module")
def gateway(
    tmp_path_factory: pytest.TempPathFactory, migrated_data: Path
) -> Iterator[Gateway]:
    """A server of its own: an administrator's chance requests may change anything."""
    data = tmp_path_factory.mktemp("document") / "data"
    shutil.copytree(migrated_data, data)
    server = ServerProcess(data).start()
    yield Gateway(server)
    server.kill()


@pytest.fixture(scope="module")
def server_rows(gateway: Gateway) -> ServerRows:
    stored = gateway.respond("Reply with exactly: hi")
    ids = {"response_id": stored["id"], "name": FAST}
    with gateway.http() as http:
        api = f"{gateway.server.url}/api"
        conversation = http.post(f"{api}/conversations/", json={}).json()["id"]
        path = f"{api}/conversations/{conversation}"
        turn = http.post(f"{path}/turns/", json={"input": "hi", "wait": True}).json()
        files = {"file": ("a.txt", b"hello", "text/plain")}
        sent = http.post(f"{path}/attachments/", files=files).json()
    ids |= {"conversations": conversation, "turns": turn["id"]}
    return ServerRows(gateway, {**ids, "attachments": sent["data"][0]["id"]})


def read_document(gateway: Gateway, path: str) -> Any:
    with gateway.http() as http:
        return http.get(f"{gateway.server.url}{path}?format=json").json()


@pytest.fixture(scope="module", params=["/api/schema/", "/api/schema/gateway/"])
def document(request: pytest.FixtureRequest, gateway: Gateway) -> Any:
    return read_document(gateway, request.param)


def operations(document: Any, server_rows: ServerRows) -> list[Any]:
    schema = schemathesis.openapi.from_dict(document)
    schema.config.update(base_url=server_rows.gateway.server.url)
    return [found.ok() for found in schema.get_all_operations()]


@pytest.mark.parametrize("mode", GenerationMode)
@pytest.mark.slow
def test_responses_match_the_openapi_document(
    server_rows: ServerRows, document: Any, mode: GenerationMode
):
    found = operations(document, server_rows)
    assert len(found) > 10
    wrong = [problem for each in found if (problem := probed(each, server_rows, mode))]
    assert not wrong, "\n\n".join(wrong)


@pytest.mark.slow
@pytest.mark.parametrize("undocumented", ["a status", "a header", "a field"])
def test_an_undocumented_response_is_found(server_rows: ServerRows, undocumented: str):
    documented = read_document(server_rows.gateway, "/api/schema/gateway/")
    get_operation = documented["paths"]["/v1/models/{name}"]["get"]
    documented["paths"] = {"/v1/models/{name}": {"get": get_operation}}
    if undocumented == "a status":
        del get_operation["responses"]["200"]
    elif undocumented == "a field":
        documented["components"]["schemas"]["OpenAIModel"]["properties"]["id"] = False
        documented["components"]["schemas"]["AnthropicModel"]["properties"]["id"] = (
            False
        )
    else:
        missing = {"x-never": {"required": True, "schema": {"type": "string"}}}
        get_operation["responses"]["200"]["headers"] = missing
    [operation] = operations(documented, server_rows)
    assert probed(operation, server_rows, GenerationMode.POSITIVE)


def probed(operation: Any, server_rows: ServerRows, mode: GenerationMode) -> str:
    """What is wrong with an operation's answers."""
    headers = {"Authorization": f"Bearer {server_rows.gateway.token}"}
    excluded = CHECKS.get_by_names(UNCHECKED)

    @FEW
    @given(case=operation.as_strategy(generation_mode=mode))
    def send(case: schemathesis.Case) -> None:
        about_what_there_is(case, server_rows.ids)
        case.call_and_validate(
            headers=headers, excluded_checks=excluded, timeout=PATIENCE
        )

    try:
        send()
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
