"""`compose.yaml` and `compose.tls.yaml`: what a container may do, and how Compose sees
that it lives."""

from __future__ import annotations

import copy
import re
from typing import Any

import pytest
import yaml
from django.conf import settings

from project.environment.monitoring import read_monitoring
from project.server.request_threads import THREADS
from project.settings import env
from tests.serving import BASE

Service = dict[str, Any]


def read_services(name: str) -> dict[str, Service]:
    text = (BASE / name).read_text().replace("!override", "")
    return yaml.safe_load(text)["services"]


SERVICES = read_services("compose.yaml")
ADDED = {
    name: service
    for name, service in read_services("compose.tls.yaml").items()
    if name not in SERVICES
}
ALL = {**SERVICES, **ADDED}
#: Programs that begin as root and become another user.
BECOME_ANOTHER = {"CHOWN", "DAC_OVERRIDE", "FOWNER", "SETGID", "SETUID"}


def find_faults(service: Service) -> set[str]:
    faults = set()
    if service.get("read_only") is not True:
        faults.add("its root file system can be written")
    if not any(each.split(":")[0] == "/tmp" for each in service.get("tmpfs", [])):
        faults.add("it has no /tmp")
    if any("size=" not in each for each in service.get("tmpfs", [])):
        faults.add("its files may take half the machine's memory")
    if service.get("cap_drop") != ["ALL"]:
        faults.add("it keeps capabilities")
    if "no-new-privileges:true" not in service.get("security_opt", []):
        faults.add("its programs may gain rights")
    if service.get("privileged"):
        faults.add("it is privileged")
    allowed = set() if "build" in service else BECOME_ANOTHER
    if not set(service.get("cap_add", [])) <= allowed:
        faults.add("it is given capabilities")
    if any("docker.sock" in str(each) for each in service.get("volumes", [])):
        faults.add("it rules its machine")
    return faults


@pytest.mark.parametrize("name", ALL)
def test_a_container_has_few_rights(name: str):
    assert find_faults(ALL[name]) == set()


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"read_only": False}, "its root file system can be written"),
        ({"tmpfs": ["/run:size=1m"]}, "it has no /tmp"),
        ({"tmpfs": ["/tmp"]}, "its files may take half the machine's memory"),
        ({"cap_drop": ["NET_RAW"]}, "it keeps capabilities"),
        ({"security_opt": []}, "its programs may gain rights"),
        ({"privileged": True}, "it is privileged"),
        ({"cap_add": ["CHOWN"]}, "it is given capabilities"),
        ({"volumes": ["/var/run/docker.sock:/s"]}, "it rules its machine"),
    ],
)
def test_more_rights_are_found(change: Service, fault: str):
    assert find_faults({**copy.deepcopy(SERVICES["web"]), **change}) == {fault}


def test_the_bodies_of_all_requests_at_once_have_room():
    text = str(SERVICES["web"]["tmpfs"])
    [size] = re.findall(r"/tmp:size=\$\{TMP_SIZE:-(\d+)g\}", text)
    assert int(size) * 2**30 >= THREADS * settings.MAX_REQUEST_SIZE


@pytest.mark.parametrize("name", ["nginx.conf", "nginx-tls.conf"])
def test_the_proxy_writes_no_body_to_its_small_folder(name: str):
    text = (BASE / "deploy" / name).read_text()
    assert "proxy_request_buffering off;" in text
    assert "proxy_buffering off;" in text


def test_https_takes_no_protection_away():
    rules = {"read_only", "tmpfs", "cap_drop", "security_opt", "privileged", "user"}
    changed = read_services("compose.tls.yaml")
    assert "proxy" in SERVICES.keys() & changed.keys()
    for name in SERVICES.keys() & changed.keys():
        assert rules.isdisjoint(changed[name])
        # A private key may be readable for its owner only.
        added = ["DAC_READ_SEARCH"] if name == "proxy" else []
        assert changed[name].get("cap_add", []) == added


@pytest.mark.parametrize("name", ["web", "worker"])
def test_the_data_folder_can_be_written_by_the_user_of_the_image(name: str):
    """Over a read-only root the server would refuse it."""
    image = (BASE / "Dockerfile").read_text()
    [user] = re.findall(r"^USER (\d+):\d+$", image, re.MULTILINE)
    folder = SERVICES[name]["environment"]["PARLEY_DATA"]
    options = dict(each.split(":", 1) for each in SERVICES[name]["tmpfs"])
    assert f"uid={user}," in options[folder]
    assert "mode=0700" in options[folder]
    assert f"media:{folder}/media" in SERVICES[name]["volumes"]


def test_a_worker_listens_where_its_health_check_asks(monkeypatch: pytest.MonkeyPatch):
    worker = SERVICES["worker"]
    assert worker["healthcheck"]["test"] == [
        *("CMD", "python", "deploy/healthy.py", "worker")
    ]
    for name, value in worker["environment"].items():
        if name.startswith("METRICS_"):
            monkeypatch.setenv(name, re.sub(r"\$\{\w+:-(.*)\}", r"\1", str(value)))
    found = read_monitoring(env)  # which refuses a port without a guard
    assert found.port
    assert [str(each) for each in found.networks] == ["127.0.0.0/8"]


def test_the_server_has_the_health_check_of_the_image():
    assert "healthcheck" not in SERVICES["web"]


def test_the_first_start_has_ten_minutes_for_its_migrations():
    checks = [
        each["healthcheck"] for each in SERVICES.values() if "healthcheck" in each
    ]
    periods = [each["start_period"] for each in checks if "start_period" in each]
    assert "--start-period=600s" in (BASE / "Dockerfile").read_text()
    assert periods
    assert set(periods) == {"600s"}
