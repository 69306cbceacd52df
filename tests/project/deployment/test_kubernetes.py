"""The manifests of `deploy/kubernetes/`: read as they are, and as kubectl renders
them. No cluster runs here."""

from __future__ import annotations

import copy
import re
import shutil
import subprocess
from collections.abc import Iterator
from ipaddress import ip_address, ip_network
from typing import Any

import pytest
import yaml

from project.settings import env
from tests.serving import BASE

Row = dict[str, Any]
FOLDER = BASE / "deploy" / "kubernetes"
KUSTOMIZATION = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())
ROWS: list[Row] = [
    row
    for name in KUSTOMIZATION["resources"]
    for row in yaml.safe_load_all((FOLDER / name).read_text())
]
DEPLOYMENTS = {
    row["metadata"]["name"].removeprefix("parley-"): row
    for row in ROWS
    if row["kind"] == "Deployment"
}
[SETTINGS] = KUSTOMIZATION["configMapGenerator"]
PRE_STOP = 5.0  # seconds
IMAGE_USER = 999


def test_every_file_is_part_of_it():
    files = {path.name for path in FOLDER.iterdir()} - {"kustomization.yaml"}
    assert files == set(KUSTOMIZATION["resources"])


# Rights


def find_faults(deployment: Row) -> set[str]:
    pod = deployment["spec"]["template"]["spec"]
    [container] = pod["containers"]
    wanted = [
        (pod, "automountServiceAccountToken", False),
        (pod, "enableServiceLinks", False),
        (pod["securityContext"], "runAsNonRoot", True),
        (pod["securityContext"], "runAsUser", IMAGE_USER),
        (pod["securityContext"], "runAsGroup", IMAGE_USER),
        (pod["securityContext"], "fsGroup", IMAGE_USER),
        (pod["securityContext"], "seccompProfile", {"type": "RuntimeDefault"}),
        (container["securityContext"], "allowPrivilegeEscalation", False),
        (container["securityContext"], "readOnlyRootFilesystem", True),
        (container["securityContext"], "capabilities", {"drop": ["ALL"]}),
    ]
    faults = {name for part, name, value in wanted if part.get(name) != value}
    faults |= {name for name in ("hostNetwork", "hostPID", "hostIPC") if name in pod}
    faults |= {"hostPath" for volume in pod["volumes"] if "hostPath" in volume}
    grace = PRE_STOP + float(env.names["DRAIN_GRACE"])
    if pod.get("terminationGracePeriodSeconds", 0) <= grace:
        faults.add("terminationGracePeriodSeconds")
    if "memory" not in container["resources"].get("limits", {}):
        faults.add("limits")
    return faults


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_a_pod_has_few_rights_and_time_to_drain(name: str):
    assert find_faults(DEPLOYMENTS[name]) == set()


POD = ("spec", "template", "spec")


@pytest.mark.parametrize(
    ("part", "change", "fault"),
    [
        (POD, {"automountServiceAccountToken": True}, "automountServiceAccountToken"),
        (POD, {"enableServiceLinks": True}, "enableServiceLinks"),
        (POD, {"hostNetwork": True}, "hostNetwork"),
        (POD, {"terminationGracePeriodSeconds": 15}, "terminationGracePeriodSeconds"),
        ((*POD, "securityContext"), {"runAsNonRoot": False}, "runAsNonRoot"),
        ((*POD, "securityContext"), {"runAsUser": 0}, "runAsUser"),
        ((*POD, "securityContext"), {"seccompProfile": {}}, "seccompProfile"),
        (
            (*POD, "containers", 0, "securityContext"),
            {"allowPrivilegeEscalation": True},
            "allowPrivilegeEscalation",
        ),
        (
            (*POD, "containers", 0, "securityContext"),
            {"readOnlyRootFilesystem": False},
            "readOnlyRootFilesystem",
        ),
        (
            (*POD, "containers", 0, "securityContext"),
            {"capabilities": {"add": ["NET_ADMIN"]}},
            "capabilities",
        ),
        ((*POD, "containers", 0, "resources"), {"limits": {}}, "limits"),
        ((*POD, "volumes", 0), {"hostPath": {"path": "/"}}, "hostPath"),
    ],
)
def test_more_rights_are_found(part: tuple[str | int, ...], change: Row, fault: str):
    deployment = copy.deepcopy(DEPLOYMENTS["serve"])
    found: Any = deployment
    for step in part:
        found = found[step]
    found.update(change)
    assert find_faults(deployment) == {fault}


def test_the_user_is_that_of_the_image():
    image = (BASE / "Dockerfile").read_text()
    assert f"\nUSER {IMAGE_USER}:{IMAGE_USER}\n" in image


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_only_temporary_files_and_the_data_folder_can_be_written(name: str):
    container = _container(name)
    image = (BASE / "Dockerfile").read_text()
    [data] = re.findall(r"\bPARLEY_DATA=(\S+)", image)
    mounts = {each["mountPath"]: each["name"] for each in container["volumeMounts"]}
    assert set(mounts) == {"/tmp", data, f"{data}/media"}
    volumes = {each["name"]: each for each in _pod(name)["volumes"]}
    assert set(mounts.values()) == set(volumes)
    [claim] = [row for row in ROWS if row["kind"] == "PersistentVolumeClaim"]
    media = volumes[mounts[f"{data}/media"]]["persistentVolumeClaim"]
    assert media["claimName"] == claim["metadata"]["name"]
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]  # pods of several nodes


# Settings


def _named_variables() -> Iterator[str]:
    yield from (each.partition("=")[0] for each in SETTINGS["literals"])
    for name in DEPLOYMENTS:
        yield from (each["name"] for each in _container(name)["env"])


def test_every_variable_is_documented_and_read():
    text = (BASE / "docs" / "settings.md").read_text()
    documented = set(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE))
    named = set(_named_variables())
    assert named - documented == set()
    assert named <= set(env.names)


def test_secrets_come_by_reference_and_are_the_same_for_both():
    serve, worker = (_container(name)["env"] for name in ("serve", "worker"))
    assert [each for each in worker if each not in serve] == [
        {"name": "METRICS_PORT", "value": "9100"},
        {"name": "METRICS_NETWORKS", "value": "127.0.0.0/8"},
    ]
    assert [each for each in serve if each not in worker] == []
    for each in serve:
        reference = each["valueFrom"]["secretKeyRef"]
        assert (reference["name"], reference["key"]) == ("parley-secrets", each["name"])
    text = "".join(path.read_text() for path in FOLDER.iterdir())
    assert "kind: Secret" not in text
    secrets = {each["name"] for each in serve}
    assert secrets.isdisjoint(each.partition("=")[0] for each in SETTINGS["literals"])


def test_both_read_the_same_settings_and_run_their_command():
    for name in DEPLOYMENTS:
        container = _container(name)
        assert container["envFrom"] == [{"configMapRef": {"name": SETTINGS["name"]}}]
        assert container["command"] == ["python", "manage.py", name]
        assert container["image"] == KUSTOMIZATION["images"][0]["name"]
        commands = BASE / "project" / "management" / "commands"
        assert (commands / f"{name}.py").exists()


# Health


def test_the_server_is_asked_whether_it_lives_and_whether_it_can_serve():
    container = _container("serve")
    paths = {
        name: container[f"{name}Probe"]["httpGet"]["path"]
        for name in ("startup", "liveness", "readiness")
    }
    # Not /readyz: a restart does not bring the database back.
    assert paths == {
        "startup": "/healthz",
        "liveness": "/healthz",
        "readiness": "/readyz",
    }
    [port] = container["ports"]
    image = (BASE / "Dockerfile").read_text()
    assert f" PORT={port['containerPort']} " in image.replace("\\\n", " ")


def test_a_worker_is_asked_by_the_program_of_the_image():
    container = _container("worker")
    for name in ("startup", "liveness"):
        command = container[f"{name}Probe"]["exec"]["command"]
        assert command == ["python", "deploy/healthy.py", "worker"]
        assert (BASE / command[1]).exists()
    [port] = container["ports"]
    values = {each["name"]: each.get("value") for each in container["env"]}
    assert values["METRICS_PORT"] == str(port["containerPort"])


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_a_first_start_has_ten_minutes_for_the_tables(name: str):
    probe = _container(name)["startupProbe"]
    assert probe["periodSeconds"] * probe["failureThreshold"] >= 600


def test_the_server_goes_on_until_no_request_comes():
    command = _container("serve")["lifecycle"]["preStop"]["exec"]["command"]
    assert (command[0], float(command[1])) == ("sleep", PRE_STOP)


# Several of each


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_an_update_and_a_disruption_leave_one(name: str):
    deployment = DEPLOYMENTS[name]["spec"]
    assert deployment["replicas"] >= 2
    assert deployment["strategy"]["rollingUpdate"]["maxUnavailable"] == 0
    [budget] = [row for row in _rows_for(name) if row["kind"] == "PodDisruptionBudget"]
    assert 1 <= budget["spec"]["minAvailable"] < deployment["replicas"]


def test_selectors_match_their_pods():
    for name, deployment in DEPLOYMENTS.items():
        labels = deployment["spec"]["template"]["metadata"]["labels"]
        assert deployment["spec"]["selector"]["matchLabels"] == labels
        assert labels["app.kubernetes.io/component"] == name
    [service] = [row for row in ROWS if row["kind"] == "Service"]
    assert service["spec"]["selector"] == _labels("serve")
    assert service["spec"]["ports"][0]["targetPort"] == _port("serve")["name"]


# The network


#: Of pods and services, of metadata services, of this machine.
PRIVATE = [
    *("10.1.2.3", "100.64.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254"),
    *("fc00::1", "fd12:3456::1", "fe80::1", "fd00:ec2::254", "::1"),
]


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_a_pod_is_reached_at_its_port_only(name: str):
    [policy] = [row for row in _rows_for(name) if row["kind"] == "NetworkPolicy"]
    assert policy["spec"]["policyTypes"] == ["Ingress"]
    [rule] = policy["spec"]["ingress"]
    assert [each["port"] for each in rule["ports"]] == [_port(name)["containerPort"]]


def test_a_pod_reaches_no_metadata_service_nor_other_services_of_the_cluster():
    [policy] = [
        row
        for row in ROWS
        if row["kind"] == "NetworkPolicy" and "Egress" in row["spec"]["policyTypes"]
    ]
    assert (
        policy["spec"]["podSelector"]["matchLabels"].items()
        <= _labels("worker").items() & _labels("serve").items()
    )
    inside, outside = policy["spec"]["egress"]
    assert 443 not in {each["port"] for each in inside["ports"]}
    allowed, left_out = [], []
    for block in outside["to"]:
        allowed.append(ip_network(block["ipBlock"]["cidr"]))
        left_out += map(ip_network, block["ipBlock"].get("except", ()))
    for address in PRIVATE:
        reaching = [net for net in allowed if ip_address(address) in net]
        refusing = [net for net in left_out if ip_address(address) in net]
        assert len(reaching) == len(refusing), address
    for address in ("1.1.1.1", "2606:4700::1111"):
        assert any(ip_address(address) in net for net in allowed)


# Rendered


def test_kubectl_renders_it():
    if not (kubectl := shutil.which("kubectl")):
        pytest.skip("kubectl is not installed")
    done = subprocess.run(
        [kubectl, "kustomize", str(FOLDER)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    rendered = list(yaml.safe_load_all(done.stdout))
    assert len(rendered) == len(ROWS) + 1  # the settings
    [image] = KUSTOMIZATION["images"]
    settings = [row for row in rendered if row["kind"] == "ConfigMap"]
    for row in rendered:
        if row["kind"] != "Namespace":
            assert row["metadata"]["namespace"] == "parley"
        if row["kind"] == "Deployment":
            assert find_faults(row) == set()
            [container] = row["spec"]["template"]["spec"]["containers"]
            assert container["image"] == f"{image['newName']}:{image['newTag']}"
            [source] = container["envFrom"]
            assert source["configMapRef"]["name"] == settings[0]["metadata"]["name"]


def _pod(name: str) -> Row:
    return DEPLOYMENTS[name]["spec"]["template"]["spec"]


def _container(name: str) -> Row:
    [container] = _pod(name)["containers"]
    return container


def _port(name: str) -> Row:
    [port] = _container(name)["ports"]
    return port


def _labels(name: str) -> dict[str, str]:
    return DEPLOYMENTS[name]["spec"]["template"]["metadata"]["labels"]


def _rows_for(name: str) -> list[Row]:
    return [row for row in ROWS if row["metadata"]["name"] == f"parley-{name}"]
