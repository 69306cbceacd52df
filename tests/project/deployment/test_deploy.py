"""`Dockerfile`, `compose.yaml` and `deploy/` beside what the program reads."""

from __future__ import annotations

import fnmatch
import os
import re
import socket
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import yaml

from project.settings import env
from tests.serving import BASE, SpawnedProcess, free_port

COMPOSE = yaml.safe_load((BASE / "compose.yaml").read_text())
OURS = {name: COMPOSE["services"][name] for name in ("web", "worker")}
IMAGE = (BASE / "Dockerfile").read_text()
IGNORED = [
    line.removeprefix("**/")
    for line in (BASE / ".dockerignore").read_text().splitlines()
    if not line.startswith("#")
]
HEALTHY = [sys.executable, str(BASE / "deploy" / "healthy.py")]


@pytest.mark.parametrize("service", OURS)
def test_containers_receive_only_variables_that_are_read(service: str):
    in_image = re.search(r"^ENV PARLEY_.*$", IMAGE, re.MULTILINE)
    assert in_image
    given = {name for name, value in OURS[service]["environment"].items() if value}
    assert given <= set(env.names)
    assert set(re.findall(r"(\w+)=", in_image[0])) <= set(env.names)


@pytest.mark.parametrize("service", OURS)
def test_secrets_of_other_services_do_not_arrive_through_the_env_file(service: str):
    """All of `.env` does, except what `environment` has too."""
    others = [COMPOSE["services"][name] for name in COMPOSE["services"].keys() - OURS]
    read_here = {*env.names, *re.findall(r"\$\{(\w+)", str(OURS[service]))}
    foreign = set(re.findall(r"\$\{(\w+)", str(others))) - read_here
    assert foreign == {"POSTGRES_ADMIN_PASSWORD"}
    assert {OURS[service]["environment"].get(name) for name in foreign} == {""}


def test_behind_tls_the_strict_settings_are_on():
    """As docs/security/asvs.md judges it."""
    tls = yaml.safe_load(
        (BASE / "compose.tls.yaml").read_text().replace("!override", "")
    )
    for name in ("web", "worker"):
        values = tls["services"][name]["environment"]
        assert set(values) <= set(env.names)
        assert values["SECOND_FACTOR_FOR_ALL"] == "${SECOND_FACTOR_FOR_ALL:-true}"
        assert values["OUTBOUND_HOSTS"].startswith("${OUTBOUND_HOSTS:?")
        host, _, port = values["CLAMD_ADDRESS"].partition(":")
        assert (host in tls["services"], port) == (True, "3310")


def test_web_and_worker_have_the_same_secrets_and_services():
    web, worker = (OURS[name]["environment"] for name in ("web", "worker"))
    different = {name for name in worker if web.get(name) != worker[name]}
    assert different == {"HOST", "METRICS_PORT", "METRICS_NETWORKS"}
    assert set(web) <= set(worker)
    assert OURS["web"]["volumes"] == OURS["worker"]["volumes"]


def test_a_stop_waits_for_longer_than_the_drain():
    for service in OURS.values():
        grace = float(service["stop_grace_period"].removesuffix("s"))
        assert grace > float(env.names["DRAIN_GRACE"])


def test_the_image_leaves_out_what_git_ignores():
    lines = (BASE / ".gitignore").read_text().split()
    missing = [
        line
        for line in (line.strip("/") for line in lines)
        if line not in IGNORED
        and not any(fnmatch.fnmatch(line, pattern) for pattern in IGNORED)
    ]
    assert missing == []


@pytest.mark.parametrize("path", [".git", "tests", "benchmarks", "docs"])
def test_the_image_leaves_out_what_a_server_does_not_need(path: str):
    assert path in IGNORED


def test_starting_the_proxy_sets_every_variable_of_its_configuration():
    left_open = set(
        re.findall(r"@[A-Z0-9_]+@", (BASE / "deploy" / "nginx.conf").read_text())
    )
    for line in (
        COMPOSE["services"]["proxy"]["command"],
        (BASE / "deploy" / "scaled.sh").read_text(),
    ):
        assert left_open <= set(re.findall(r"@[A-Z0-9_]+@", line))


@pytest.mark.parametrize("name", ["nginx.conf", "nginx-tls.conf"])
def test_no_answer_of_the_application_counts_as_a_failed_process(name: str):
    """502 is also that a provider refuses its key, 503 that files are unavailable: the
    proxy would leave all web processes for that."""
    text = (BASE / "deploy" / name).read_text()
    assert re.findall(r"proxy_next_upstream ([^;]+);", text) == ["error timeout"]


def test_the_proxies_pass_the_largest_request_on():
    """One by default, which is an import."""
    pattern = r"(?:client_max_body_size|proxy-body-size:) (\d+)m\b"
    for name in ("nginx.conf", "nginx-tls.conf", "helm/parley/values.yaml"):
        [megabytes] = re.findall(pattern, (BASE / "deploy" / name).read_text())
        assert int(megabytes) * 2**20 >= int(env.names["IMPORT_MAX_SIZE"]) + 1_000_000


@pytest.mark.parametrize(
    "name", ["nginx.conf", "nginx-tls.conf", "helm/parley/values.yaml"]
)
def test_no_proxy_stores_a_body_before_parley_may_refuse_it(name: str):
    text = (BASE / "deploy" / name).read_text()
    assert re.search(r'proxy[_-]request[_-]buffering(:? )"?off\b', text)


def test_tokens_sent_in_the_clear_are_not_redirected():
    text = (BASE / "deploy" / "nginx-tls.conf").read_text()
    [pattern] = re.findall(r"location ~ (\S+) \{ return 403; \}", text)
    for path in ("/v1/models", "/api/turns", "/scim/v2/Users", "/metrics", "/scim"):
        assert re.match(pattern, path)
    assert not re.match(pattern, "/apiary/")


@pytest.mark.slow
@pytest.mark.smoke
def test_a_container_is_healthy_by_whatever_name_browsers_know_it(tmp_path: Path):
    names: dict[str, Any] = {"ALLOWED_HOSTS": "chat.example.org"}
    server = SpawnedProcess(tmp_path / "data", names)
    server.start()
    try:
        assert _is_healthy(server.port)
    finally:
        server.stop()


def test_containers_and_pods_have_the_same_time_to_migrate():
    compose = OURS["worker"]["healthcheck"]["start_period"]
    image = re.findall(r"--start-period=(\d+s)", IMAGE)
    probe = re.findall(
        r"failureThreshold: (\d+)",
        (BASE / "deploy" / "kubernetes" / "worker.yaml").read_text(),
    )
    assert {compose, *image} == {f"{5 * int(probe[0])}s"}  # asked every five seconds


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="no IPv6 here")
def test_a_container_that_listens_on_ipv6_alone_is_healthy():
    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()

    class Server(HTTPServer):
        address_family = socket.AF_INET6

    with Server(("::1", 0), Answer) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        assert _is_healthy(server.server_address[1])
        server.shutdown()


def test_a_container_whose_server_does_not_respond_is_unhealthy():
    assert not _is_healthy(free_port())


def _is_healthy(port: int) -> bool:
    there = {**os.environ, "PORT": str(port)}
    done = subprocess.run(HEALTHY, env=there, capture_output=True, check=False)
    return done.returncode == 0
