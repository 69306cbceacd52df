"""`/metrics` of workers and web processes."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import httpx
import pytest

from tests.integration.clients import Program, Screen
from tests.integration.following import whole
from tests.project.monitoring.live_metrics import TOKEN, read, scrape, value
from tests.scaled import Cluster, migrated
from tests.serving import free_port

pytestmark = [pytest.mark.scaled, pytest.mark.slow]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with migrated(tmp_path_factory.mktemp("template")) as template:
        folder = tmp_path_factory.mktemp("metrics")
        cluster = Cluster(folder, template, webs=1, workers=1, METRICS_TOKEN=TOKEN)
        port = free_port()
        cluster.workers[0].options = ("--metrics-port", str(port))
        try:
            yield cluster.start()
        finally:
            cluster.end()


def address_of_worker(cluster: Cluster) -> str:
    return f"http://127.0.0.1:{cluster.workers[0].options[1]}"


async def test_the_worker_counts_what_it_runs_and_both_read_the_rows(cluster: Cluster):
    web, worker = cluster.webs[0].url, address_of_worker(cluster)
    program, screen = Program(cluster.webs[0]), Screen()
    stop, texts = threading.Event(), list[str]()

    def scrape_all_the_time() -> None:
        while not stop.is_set():
            texts.append(scrape(worker))

    scraping = [threading.Thread(target=scrape_all_the_time) for _ in range(2)]
    for thread in scraping:
        thread.start()
    try:
        turn = await program.create_turn(await program.conversation(), "/long 60")
        await whole(program, turn, screen)
    finally:
        stop.set()
        for thread in scraping:
            thread.join()
    assert screen.text == " ".join(str(number) for number in range(1, 61))
    assert texts
    scrapes = [read(text) for text in texts]
    assert max(value(each, "parley_process_turns") for each in scrapes) == 1
    assert max(value(each, "parley_event_logs") for each in scrapes) >= 1
    assert max(value(each, "parley_leases", state="held") for each in scrapes) == 1
    of_worker, of_web = read(scrape(worker)), read(scrape(web))
    ended = "parley_turns_ended_total"
    assert value(of_worker, ended, state="completed") == 1
    assert ended not in {each.name for each in of_web}
    for samples in (of_worker, of_web):
        assert value(samples, "parley_info", delivery="scaled") == 1
        assert value(samples, "parley_database_up") == 1
        for runs_turns in ("yes", "no"):
            up = {"runs_turns": runs_turns, "state": "up"}
            assert value(samples, "parley_processes", **up) == 1
    assert value(of_worker, "parley_process_turn_slots") > 0
    assert value(of_web, "parley_process_turn_slots") == 0


def test_the_port_of_the_worker_is_guarded_and_serves_nothing_else(cluster: Cluster):
    worker = address_of_worker(cluster)
    for headers in ({}, {"Authorization": "Bearer wrong"}):
        answer = httpx.get(f"{worker}/metrics", headers=headers)
        assert (answer.status_code, answer.text) == (401, "Not allowed.\n")
    assert httpx.get(f"{worker}/").status_code == 404
    headers = {"Authorization": f"Bearer {TOKEN}"}
    assert httpx.post(f"{worker}/metrics", headers=headers).status_code == 405


def test_a_worker_refuses_a_port_that_nobody_may_read_or_that_is_taken(
    cluster: Cluster,
):
    worker = cluster.workers[0]
    line = worker.refused("--metrics-port", "9", METRICS_TOKEN="")
    assert line.startswith("--metrics-port: it needs METRICS_TOKEN or")
    line = worker.refused(*worker.options)
    assert line.startswith("METRICS_PORT: cannot listen at 127.0.0.1:")
