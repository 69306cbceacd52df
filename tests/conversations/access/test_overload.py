"""A process with too much work refuses new work, at each entry point in its form."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from django.urls import reverse

from conversations.access import overload
from conversations.access.errors import ServerBusy
from conversations.access.overload import LIMITS, Load, check_room
from conversations.engine.process.engine_metrics import EngineCollector
from conversations.models import Turn
from conversations.throttled_warning import ThrottledWarning
from project.server.django_handler import Handler
from tests.conversations.scene import signed_in

REFUSAL = {
    "error": {
        "message": "The server is busy; try again in a few seconds.",
        "type": "server_error",
        "param": None,
        "code": "server_busy",
    }
}


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Load:
    load = Load()
    monkeypatch.setattr(overload, "load", load)
    return load


@pytest.fixture
def busy(load: Load) -> None:
    load.excess = "MAX_LAG"


@pytest.mark.parametrize("name", LIMITS)
def test_each_limit_refuses_once_it_is_reached(name: str, load: Load, settings: Any):
    for each in LIMITS:
        setattr(settings, each, 5)
    load.lag = load.memory = 4.9
    load.start_wait = load.waiting_turns = load.connections = lambda: 4
    load.update(4.9)
    check_room()
    match name:
        case "MAX_LAG":
            load.lag = 5
        case "MAX_MEMORY":
            load.memory = 5
        case "MAX_START_WAIT":
            load.start_wait = lambda: 5
        case "MAX_WAITING_TURNS":
            load.waiting_turns = lambda: 5
        case _:
            load.connections = lambda: 5
    load.update(5)
    assert load.excess == name
    with pytest.raises(ServerBusy) as caught:
        check_room()
    assert caught.value.retry_after
    assert load.refusals == {**dict.fromkeys(LIMITS, 0), name: 1}
    setattr(settings, name, 0)
    load.update(0)
    check_room()


def test_the_log_names_the_limit_and_once_a_minute(
    load: Load, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    logger, minute = logging.getLogger(overload.__name__), iter([0.0, 59.0, 61.0])
    throttled = ThrottledWarning(logger, "refused: %s", clock=lambda: next(minute))
    monkeypatch.setattr(overload, "refusal_warnings", {"MAX_MEMORY": throttled})
    load.excess = "MAX_MEMORY"
    for _ in range(3):
        with pytest.raises(ServerBusy):
            check_room()
    assert caplog.messages == ["refused: MAX_MEMORY"] * 2


@pytest.mark.django_db(transaction=True)
async def test_the_metric_counts_by_limit_from_the_start(running: None, load: Load):
    load.excess = "MAX_MEMORY"
    with pytest.raises(ServerBusy):
        check_room()
    families = {each.name: each for each in EngineCollector().collect()}
    samples = families["parley_busy_refusals"].samples
    found = {each.labels["limit"]: each.value for each in samples}
    assert found == {**dict.fromkeys(LIMITS, 0), "MAX_MEMORY": 1}


def test_one_stall_is_no_overload_and_a_lasting_one_is(load: Load, settings: Any):
    settings.MAX_LAG = 1
    load.update(20)  # a pause of the machine
    check_room()
    for _ in range(200):
        load.update(1.2)
    assert load.excess == "MAX_LAG"
    for _ in range(200):
        load.update(0.01)
    check_room()


def test_memory_is_that_of_the_process(load: Load):
    load.note_memory()
    assert 10 < load.memory < 10_000


@pytest.mark.usefixtures("busy")
def test_rest_refuses_a_message_and_stores_nothing(conversation):
    client = signed_in(conversation.owner)
    path = f"/api/conversations/{conversation.pk}/turns/"
    answer = client.post(path, {"input": "Hi"}, "application/json")
    assert (answer.status_code, answer["Retry-After"]) == (503, "2")
    assert answer.json() == REFUSAL
    assert not Turn.objects.exists()
    assert client.get(path).status_code == 200  # reading goes on


@pytest.mark.usefixtures("busy")
def test_a_form_comes_back_with_its_text(conversation):
    page = reverse("conversation", args=[conversation.pk])
    form = {"text": "A long thought", "key": "k1"}
    answer = signed_in(conversation.owner).post(page, form)
    assert (answer.status_code, answer["Retry-After"]) == (503, "2")
    text = answer.content.decode()
    assert "A long thought" in text
    assert "The server is busy; try again in a few seconds." in text
    assert not Turn.objects.exists()


@pytest.mark.usefixtures("busy")
@pytest.mark.parametrize(
    ("view", "names"), [("turns", ["conv_1"]), ("continue", ["resp_1"])]
)
async def test_the_server_refuses_work_of_rest_before_it_reads_it(
    view: str, names: list[str], load: Load
):
    """As a view would, but without a thread and though no body has come."""
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        raise AssertionError("the body is not read")

    path = reverse(f"api:{view}", args=names)
    scope = {"type": "http", "method": "POST", "path": path, "headers": []}
    await Handler()(scope, receive, send)
    start, body = sent
    headers = {name.lower(): value for name, value in start["headers"]}
    assert (start["status"], headers[b"retry-after"]) == (503, b"2")
    assert headers[b"content-type"] == b"application/json"
    assert json.loads(body["body"]) == REFUSAL
    assert load.refusals["MAX_LAG"] == 1


@pytest.mark.usefixtures("busy")
def test_dictation_is_new_work(conversation):
    path = reverse("api:dictation")
    answer = signed_in(conversation.owner).post(path, {})
    assert (answer.status_code, answer["Retry-After"]) == (503, "2")
    assert answer.json() == REFUSAL
