"""The Helm chart: by default it renders the objects of `deploy/kubernetes/`, whose
rights, probes and networks `test_kubernetes.py` checks. No cluster runs here."""

from __future__ import annotations

import copy
import subprocess
import tomllib
from typing import Any

import pytest
import yaml

from tests.project.deployment.helm import find_helm
from tests.project.deployment.test_kubernetes import (
    KUSTOMIZATION,
    PRE_STOP,
    ROWS,
    SETTINGS,
)
from tests.serving import BASE

pytestmark = pytest.mark.slow  # it may have to download Helm

Row = dict[str, Any]
CHART = BASE / "deploy" / "helm" / "parley"
INSTANCE = "app.kubernetes.io/instance"  # two releases in one namespace


@pytest.fixture(scope="module")
def helm() -> str:
    return find_helm()


def run_helm(helm: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [helm, *arguments], capture_output=True, text=True, timeout=60, check=False
    )


def render(helm: str, *values: str, release: str = "parley") -> list[Row]:
    chosen = [argument for value in values for argument in ("--set", value)]
    done = run_helm(helm, "template", release, str(CHART), *chosen)
    assert (done.returncode, done.stderr) == (0, "")
    return [row for row in yaml.safe_load_all(done.stdout) if row]


def without_instance(value: Any) -> Any:
    if isinstance(value, dict):
        rest = {k: v for k, v in value.items() if k != INSTANCE}
        return {k: without_instance(v) for k, v in rest.items()}
    return [without_instance(v) for v in value] if isinstance(value, list) else value


def find(rows: list[Row], kind: str) -> list[Row]:
    return [row for row in rows if row["kind"] == kind]


def by_name(rows: list[Row]) -> dict[tuple[str, str], Row]:
    return {(row["kind"], row["metadata"]["name"]): row for row in rows}


def test_it_has_no_fault_and_the_version_of_the_project(helm: str):
    done = run_helm(helm, "lint", "--strict", str(CHART))
    assert done.returncode == 0, done.stdout
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    project = tomllib.loads((BASE / "pyproject.toml").read_text())["project"]
    assert chart["version"] == chart["appVersion"] == project["version"]


def test_by_default_it_is_the_same_as_the_plain_manifests(helm: str):
    rows = [without_instance(row) for row in render(helm)]
    [settings] = find(rows, "ConfigMap")
    literals = dict(each.split("=", 1) for each in SETTINGS["literals"])
    assert settings["data"] == {"DRAIN_GRACE": "10", **literals}
    [image] = KUSTOMIZATION["images"]
    for row in find(rows, "Deployment"):
        pod = row["spec"]["template"]
        assert pod["metadata"].pop("annotations").keys() == {"checksum/settings"}
        [container] = pod["spec"]["containers"]
        assert container["image"] == f"{image['newName']}:{image['newTag']}"
        container["image"] = "parley"
        container["env"] = sorted(container["env"], key=str)
    [claim] = find(rows, "PersistentVolumeClaim")
    del claim["metadata"]["annotations"]
    plain = [copy.deepcopy(row) for row in ROWS if row["kind"] != "Namespace"]
    for row in find(plain, "Deployment"):
        [container] = row["spec"]["template"]["spec"]["containers"]
        container["env"] = sorted(container["env"], key=str)
    rows.remove(settings)
    assert by_name(rows) == by_name(plain)


def test_a_change_of_the_settings_replaces_the_pods(helm: str):
    def checksums(*values: str) -> set[str]:
        return {
            row["spec"]["template"]["metadata"]["annotations"]["checksum/settings"]
            for row in find(render(helm, *values), "Deployment")
        }

    assert len(checksums()) == 1
    assert checksums() != checksums("settings.OUTBOUND_HOSTS=api.example.org")


def test_the_time_to_end_grows_with_the_grace(helm: str):
    rows = render(helm, "drainGrace=120")
    [settings] = find(rows, "ConfigMap")
    assert settings["data"]["DRAIN_GRACE"] == "120"
    for row in find(rows, "Deployment"):
        grace = row["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
        assert grace > 120 + PRE_STOP


def test_a_single_process_does_not_stop_the_maintenance_of_its_node(helm: str):
    rows = find(render(helm, "serve.replicas=1"), "PodDisruptionBudget")
    assert ("PodDisruptionBudget", "parley-serve") in by_name(rows)
    for row in rows:
        is_single = row["metadata"]["name"] == "parley-serve"
        assert ("maxUnavailable" in row["spec"]) is is_single
        assert ("minAvailable" in row["spec"]) is not is_single


def test_two_releases_in_a_namespace_share_nothing(helm: str):
    one, two = render(helm), render(helm, release="second")
    assert by_name(one).keys().isdisjoint(by_name(two))
    for kind in ("Deployment", "PodDisruptionBudget"):
        for row in find(two, kind):
            assert row["spec"]["selector"]["matchLabels"][INSTANCE] == "second"
    [service] = find(two, "Service")
    assert service["spec"]["selector"][INSTANCE] == "second"
    for row in find(two, "NetworkPolicy"):
        assert row["spec"]["podSelector"]["matchLabels"][INSTANCE] == "second"


def test_an_ingress_leads_to_the_service_over_tls_and_does_not_buffer(helm: str):
    assert find(render(helm), "Ingress") == []
    hosts = ["ingress.host=chat.example.com", "settings.ALLOWED_HOSTS=chat.example.com"]
    rows = render(helm, "ingress.enabled=true", *hosts)
    [ingress], [service] = find(rows, "Ingress"), find(rows, "Service")
    [rule], [tls] = ingress["spec"]["rules"], ingress["spec"]["tls"]
    [path] = rule["http"]["paths"]
    assert path["backend"]["service"]["name"] == service["metadata"]["name"]
    assert tls["hosts"] == [rule["host"]] == ["chat.example.com"]
    notes = ingress["metadata"]["annotations"]
    assert notes["nginx.ingress.kubernetes.io/proxy-buffering"] == "off"


@pytest.mark.parametrize(
    "hosts", ["*", r".example.com", r"a.example.org\, chat.example.com"]
)
def test_an_ingress_takes_the_hosts_that_the_server_takes(helm: str, hosts: str):
    values = [f"settings.ALLOWED_HOSTS={hosts}", "ingress.host=chat.example.com"]
    assert find(render(helm, "ingress.enabled=true", *values), "Ingress")


def test_files_may_lie_in_a_claim_of_your_own(helm: str):
    rows = render(helm, "media.existingClaim=files", "networkPolicies=false")
    assert find(rows, "PersistentVolumeClaim") == []
    assert find(rows, "NetworkPolicy") == []
    for row in find(rows, "Deployment"):
        claims = [
            volume["persistentVolumeClaim"]["claimName"]
            for volume in row["spec"]["template"]["spec"]["volumes"]
            if "persistentVolumeClaim" in volume
        ]
        assert claims == ["files"]


def test_pods_with_addresses_of_the_internet_reach_no_other_pods(helm: str):
    rows = render(helm, "ipv6PodNetworks={2600:1f14:123::/56}")
    [egress] = [row for row in find(rows, "NetworkPolicy") if "egress" in row["spec"]]
    blocks = [each["ipBlock"] for each in egress["spec"]["egress"][1]["to"]]
    assert blocks[1] == {"cidr": "2000::/3", "except": ["2600:1f14:123::/56"]}


def test_files_in_a_bucket_need_no_claim(helm: str):
    rows = render(helm, "settings.S3_BUCKET=parley-files")
    assert find(rows, "PersistentVolumeClaim") == []
    for row in find(rows, "Deployment"):
        pod = row["spec"]["template"]["spec"]
        volumes = {each["name"] for each in pod["volumes"]}
        mounts = {each["name"] for each in pod["containers"][0]["volumeMounts"]}
        assert mounts <= volumes
        assert "media" not in volumes


@pytest.mark.parametrize(
    ("value", "where"),
    [
        ("serve.replicas=0", "/serve/replicas"),
        ("worker.replicas=many", "/worker/replicas"),
        ("drainGrace=-1", "/drainGrace"),
        ("media.size=20", "/media/size"),
        ("settings.allowed_hosts=a", "allowed_hosts"),
        ("settings.DRAIN_GRACE=5", "DRAIN_GRACE"),  # `drainGrace` sets it
        ("settings.PORT=9000", "PORT"),  # probes and policies name the port
        ("settings.METRICS_NETWORKS=10.0.0.0/8", "METRICS_NETWORKS"),
        ("ingress.enabled=true,ingress.host=other.example.org", "ALLOWED_HOSTS"),
        ("settings.ALLOWED_HOSTS=null", "/settings"),
        ("settings.HOST=127.0.0.1", "/settings/HOST"),
        ("settings.SECRET_KEY=abc", "SECRET_KEY"),  # the secret's
        ("settings.OPENAI_API_KEY=abc", "OPENAI_API_KEY"),
        ("ingress.enabled=true,settings.BEHIND_HTTPS=null", "BEHIND_HTTPS"),
        ("secret.name=", "/secret/name"),
        ("sevre.replicas=3", "sevre"),
    ],
)
def test_a_wrong_value_is_refused_by_its_name(helm: str, value: str, where: str):
    done = run_helm(helm, "template", "parley", str(CHART), "--set", value)
    assert done.returncode != 0
    assert where in done.stderr
