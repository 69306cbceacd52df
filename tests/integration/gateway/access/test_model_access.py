"""Which models a user may use, and which answers for a retired one: by entry point."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.integration.clients import events_of_turn, sign_in
from tests.integration.clients import socket as page_socket
from tests.serving import PASSWORD, PATIENCE, ServerProcess

pytestmark = pytest.mark.server

_ROWS = f"""
import json
from datetime import timedelta
from django.contrib.auth.models import Group, User
from django.utils import timezone
from llm.models import Provider
demo = Provider.objects.get(kind="demo")
demo.models.update(enabled=False)
new = demo.models.create(name="demo-fast", alias="new", is_default=True)
other = Provider.objects.create(name="Other", kind="demo")
other.keys.create(secret=demo.keys.get().secret.reveal())
past = timezone.now() - timedelta(days=1)
writers = Group.objects.create(name="writers")
closed = other.models.create(name="demo-fast", alias="closed")
closed.groups.add(writers)
other.models.create(name="demo-slow", alias="old", retires_at=past, replacement=new)
other.models.create(
    name="demo", alias="old-closed", retires_at=past, replacement=closed
)
for name in ("ann", "bob"):
    User.objects.create_user(name, password={PASSWORD!r})
writers.user_set.add(User.objects.get(username="ann"))
"""
MESSAGES = [{"role": "user", "content": "Hi"}]
#: The paths of the gateway, each with what a request needs beside its model.
PATHS: dict[str, tuple[str, dict[str, Any]]] = {
    "chat": ("/v1/chat/completions", {"messages": MESSAGES}),
    "messages": ("/v1/messages", {"messages": MESSAGES, "max_tokens": 50}),
    "unstored response": ("/v1/responses", {"input": "Hi", "store": False}),
    "stored response": ("/v1/responses", {"input": "Hi"}),
}
#: Its host speaks the API: its answer is forwarded, with the host's name of the model.
FORWARDED = "unstored response"


class Program:
    """A user of the server, with a token."""

    def __init__(self, server: ServerProcess, user: str) -> None:
        self.server, self.user = server, user
        headers = {"Authorization": f"Bearer {server.create_token(user)}"}
        self.http = httpx.Client(base_url=server.url, headers=headers, timeout=PATIENCE)

    def post(self, path: str, **body: Any) -> httpx.Response:
        return self.http.post(path, json=body)

    def conversation(self, **fields: Any) -> str:
        return str(self.post("/api/conversations/", **fields).json()["id"])

    def say(self, model: str) -> httpx.Response:
        path = f"/api/conversations/{self.conversation()}/turns/"
        return self.post(path, input="Hi", model=model, wait=True)

    async def say_on_page(self, model: str) -> list[dict[str, Any]]:
        cookie = await sign_in(self.server, self.user)
        conversation = self.conversation()
        async with page_socket(self.server, conversation, cookie) as socket:
            sent = {"type": "turn.create", "input": "Hi", "model": model}
            await socket.send(json.dumps(sent))
            first = json.loads(await socket.recv())
            if first["type"] == "error":
                return [first]
            events = events_of_turn(socket, first["turn"])
            return [event async for _position, event in events]

    async def page(self, path: str) -> str:
        cookie = await sign_in(self.server, self.user)
        async with httpx.AsyncClient(base_url=self.server.url) as http:
            return (await http.get(path, headers={"Cookie": cookie})).text


@pytest.fixture(scope="module")
def server(
    tmp_path_factory: pytest.TempPathFactory, migrated_data: Path
) -> Iterator[ServerProcess]:
    data = tmp_path_factory.mktemp("models") / "data"
    shutil.copytree(migrated_data, data)
    server = ServerProcess(data).start()
    server.manage("shell", "-v0", "-c", _ROWS)
    yield server
    server.kill()


@pytest.fixture(scope="module")
def ann(server: ServerProcess) -> Iterator[Program]:
    """In the group that may use the closed model."""
    program = Program(server, "ann")
    with program.http:
        yield program


@pytest.fixture(scope="module")
def bob(server: ServerProcess) -> Iterator[Program]:
    program = Program(server, "bob")
    with program.http:
        yield program


def words(answer: httpx.Response) -> str:
    return str(answer.json()["error"]["message"])


# Rights of groups


def listed(program: Program) -> list[set[str]]:
    """The names of models in each list that a program can read."""
    rest = program.http.get("/api/models/").json()["data"]
    gateway = program.http.get("/v1/models").json()["data"]
    return [{row["id"] for row in rest}, {row["display_name"] for row in gateway}]


def test_each_list_has_the_models_that_its_reader_may_use(ann: Program, bob: Program):
    assert listed(ann) == [{"new", "closed"}, {"new", "closed"}]
    assert listed(bob) == [{"new"}, {"new"}]
    assert ann.http.get("/v1/models/closed").status_code == 200
    assert bob.http.get("/v1/models/closed").status_code == 404


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("name", ["closed", "Other/demo-fast"])
def test_the_gateway_uses_a_model_for_its_groups_only(ann, bob, path: str, name: str):
    address, body = PATHS[path]
    assert ann.post(address, model=name, **body).status_code == 200
    refused = bob.post(address, model=name, **body)
    unknown = bob.post(address, model="nobody-has-it", **body)
    assert refused.status_code == unknown.status_code == 404
    assert words(refused).replace(name, "nobody-has-it") == words(unknown)


def test_rest_uses_a_model_for_its_groups_only(ann: Program, bob: Program):
    assert ann.say("closed").json()["status"] == "completed"
    refused, unknown = bob.say("closed"), bob.say("nobody-has-it")
    assert refused.status_code == unknown.status_code == 404
    fields = {"model": "closed"}
    assert bob.post("/api/conversations/", **fields).status_code == 404


@pytest.mark.slow
async def test_pages_offer_and_use_a_model_for_its_groups_only(ann, bob):
    assert 'value="closed"' in await ann.page("/")
    assert "closed" not in await bob.page("/")
    assert (await ann.say_on_page("closed"))[-1]["type"] == "response.completed"
    assert (await bob.say_on_page("closed"))[-1]["type"] == "error"


# Retired models


@pytest.mark.parametrize("path", PATHS)
def test_the_gateway_sends_a_retired_model_s_requests_to_its_replacement(bob, path):
    address, body = PATHS[path]
    answer = bob.post(address, model="old", **body)
    assert answer.status_code == 200, answer.text
    assert answer.headers["x-parley-model-replaced"] == "old -> new"
    expected = "demo-fast" if path == FORWARDED else "new"
    assert answer.json()["model"] == expected
    usual = bob.post(address, model="new", **body)
    assert "x-parley-model-replaced" not in usual.headers


def test_a_stream_names_the_replacement_before_its_first_event(bob: Program):
    address, body = PATHS["chat"]
    sent = {"model": "old", "stream": True, **body}
    with bob.http.stream("POST", address, json=sent) as answer:
        assert answer.headers["x-parley-model-replaced"] == "old -> new"
        assert '"model":"new"' in answer.read().decode()


def test_rest_and_the_rows_name_the_replacement(server, bob: Program):
    answer = bob.say("old")
    assert answer.json()["model"] == "new"
    found = server.manage(
        "shell",
        "-v0",
        "-c",
        "from llm.models import ModelCall; "
        f"row = ModelCall.objects.get(turn_id={answer.json()['id']!r}); "
        "print(row.model.public_name, row.degraded)",
    )
    assert found.strip() == "new ['model (old → new, retired)']"


@pytest.mark.slow
async def test_the_page_says_who_answers_for_a_retired_model(server, bob: Program):
    """Of a conversation whose model is retired, and of a page opened before."""
    row = bob.conversation()
    server.manage(
        "shell",
        "-v0",
        "-c",
        "from llm.models import *; from conversations.models import *; "
        f"Conversation.objects.filter(pk={row!r})"
        ".update(language_model=LanguageModel.objects.get(alias='old'))",
    )
    page = " ".join((await bob.page(f"/chat/{row}/")).split())
    assert "demo-slow is retired; demo-fast answers." in page
    assert 'value="old"' not in page
    assert (await bob.say_on_page("old"))[-1]["response"]["model"] == "new"


@pytest.mark.parametrize("path", PATHS)
def test_a_replacement_that_the_user_may_not_use_refuses_in_words(ann, bob, path):
    address, body = PATHS[path]
    refused = bob.post(address, model="old-closed", **body)
    assert refused.status_code == 404
    assert "it was retired on" in refused.text
    assert "closed'" not in refused.text.replace("old-closed'", "")
    expected = "demo-fast" if path == FORWARDED else "closed"
    assert ann.post(address, model="old-closed", **body).json()["model"] == expected
