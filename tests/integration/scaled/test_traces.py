"""A trace that goes on in a worker, and the worker's log."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.integration.clients import Program
from tests.project.monitoring.otlp_receiver import Receiver, receiving
from tests.scaled import Cluster, migrated

pytestmark = [pytest.mark.scaled, pytest.mark.slow]

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-b7ad6b7169203331-01"


@pytest.fixture
def traced(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[Cluster, Receiver]]:
    with (
        migrated(tmp_path_factory.mktemp("template")) as template,
        receiving() as (
            url,
            receiver,
        ),
    ):
        cluster = Cluster(
            tmp_path_factory.mktemp("traced"),
            template,
            webs=1,
            workers=1,
            OTEL_EXPORTER_OTLP_ENDPOINT=url,
            OTEL_BSP_SCHEDULE_DELAY="100",
            LOG_FORMAT="json",
        )
        try:
            yield cluster.start(), receiver
        finally:
            cluster.end()


async def test_a_worker_continues_the_trace_of_the_request(
    traced: tuple[Cluster, Receiver],
):
    cluster, receiver = traced
    program = Program(cluster.webs[0])
    path = f"/api/conversations/{await program.conversation()}/turns/"
    async with program.http() as http:
        body = {"input": "/fail 400", "wait": True}
        answer = await http.post(path, json=body, headers={"traceparent": PARENT})
    (turn,) = receiver.wait_for("invoke_agent")
    (call,) = receiver.wait_for("chat demo")
    requests = receiver.wait_for("POST", 2)
    (request,) = (span for span in requests if span.trace_id == TRACE)
    assert (turn.trace_id, turn.parent_id) == (TRACE, request.span_id)
    assert (call.trace_id, call.parent_id) == (TRACE, turn.span_id)
    instance = "service.instance.id"
    assert turn.resource[instance] != request.resource[instance]
    assert turn.attributes["parley.request.id"] == answer.headers["x-request-id"]
    lines = [json.loads(line) for line in cluster.log().splitlines()]
    (line,) = (each for each in lines if "a call of the model" in each["message"])
    assert line["request"] == answer.headers["x-request-id"]
    assert line["turn"] == answer.json()["id"]
    assert (line["trace"], line["span"]) == (TRACE, turn.span_id)
