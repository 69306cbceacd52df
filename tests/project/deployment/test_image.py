"""`Dockerfile` and `deploy/healthy.py`: what is in the image, as whom it runs, and how
it says that it lives."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
import tomllib

import pytest

from project.monitoring.metrics_port import MetricsPort
from tests.serving import BASE, free_port

IMAGE = (BASE / "Dockerfile").read_text()
HEALTHY = str(BASE / "deploy" / "healthy.py")
Instruction = tuple[str, str]


def read_stages(text: str) -> list[list[Instruction]]:
    stages: list[list[Instruction]] = []
    for line in text.replace("\\\n", " ").splitlines():
        word, _, rest = line.partition(" ")
        if word == "FROM":
            stages.append([])
        if word.isupper():
            stages[-1].append((word, rest.strip()))
    return stages


def find_faults(text: str) -> set[str]:
    *builders, runtime = read_stages(text)
    faults = set()
    if not builders:
        faults.add("there is one stage only")
    for word, rest in (each for stage in (*builders, runtime) for each in stage):
        if word == "RUN" and "pip " in rest and "--require-hashes" not in rest:
            faults.add("a package is installed without its hash")
        if word == "ADD":
            faults.add("ADD downloads and unpacks")
    last = dict(runtime)
    if any(word == "RUN" and re.search(r"\b(pip|apt)", rest) for word, rest in runtime):
        faults.add("the runtime stage installs packages")
    if any(word == "COPY" and "--from=" not in rest for word, rest in runtime):
        faults.add("the runtime stage copies from outside")
    if not re.fullmatch(r"[1-9]\d*:[1-9]\d*", last.get("USER", "")):
        faults.add("it runs as root, or as a name that Kubernetes cannot check")
    if "HEALTHCHECK" not in last:
        faults.add("it has no health check")
    if last.get("STOPSIGNAL") != "SIGTERM":
        faults.add("it is not drained")
    return faults


def test_the_image_is_made_as_we_promise():
    assert find_faults(IMAGE) == set()


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("FROM python:3.12-slim\nENV", "ENV", "there is one stage only"),
        (" --require-hashes", "", "a package is installed without its hash"),
        ("COPY . .", "ADD . .", "ADD downloads and unpacks"),
        (
            "RUN groupadd",
            "RUN apt-get install x && groupadd",
            "the runtime stage installs packages",
        ),
        (
            "COPY --from=builder /srv/parley",
            "COPY .",
            "the runtime stage copies from outside",
        ),
        (
            "USER 999:999",
            "USER 0:0",
            "it runs as root, or as a name that Kubernetes cannot check",
        ),
        (
            "USER 999:999",
            "USER parley",
            "it runs as root, or as a name that Kubernetes cannot check",
        ),
        ("HEALTHCHECK", "LABEL", "it has no health check"),
        ("STOPSIGNAL SIGTERM\n", "", "it is not drained"),
    ],
)
def test_a_broken_promise_is_found(old: str, new: str, fault: str):
    assert old in IMAGE
    assert fault in find_faults(IMAGE.replace(old, new))


def test_the_image_says_what_it_is():
    """So that who has an image alone finds its bill of materials."""
    project = tomllib.loads((BASE / "pyproject.toml").read_text())["project"]
    prefix = r"org\.opencontainers\.image\."
    labels = dict(re.findall(rf'{prefix}(\w+)="([^"]*)"', IMAGE))
    assert labels["version"] == project["version"]
    assert labels["licenses"] == project["license"]
    assert labels["revision"] == "$REVISION"


def test_every_folder_of_code_is_compiled():
    [line] = re.findall(r"compileall -q ([\w ]+)", IMAGE)
    packages = tomllib.loads((BASE / "pyproject.toml").read_text())["tool"]["hatch"]
    assert set(line.split()) == set(packages["build"]["targets"]["wheel"]["packages"])


def test_the_health_check_is_in_the_image():
    [command] = re.findall(r"HEALTHCHECK .*\n\s+CMD (.*)", IMAGE)
    program = json.loads(command)[1]
    ignored = (BASE / ".dockerignore").read_text().split()
    assert (BASE / program).samefile(HEALTHY)
    assert {program, "deploy"}.isdisjoint(ignored)


def test_the_image_has_the_versions_of_the_server_and_its_extras():
    image, server = _pins("requirements-image.txt"), _pins("requirements.txt")
    assert server.items() <= image.items()
    extras = tomllib.loads((BASE / "pyproject.toml").read_text())["project"]
    wanted = {
        re.match(r"[\w-]+", each)[0]  # type: ignore[index]
        for extra in ("otel", "s3")
        for each in extras["optional-dependencies"][extra]
    }
    assert wanted <= set(image)
    added = image.items() - server.items()
    assert added <= _pins("requirements-dev.txt").items()  # as tested


def _pins(name: str) -> dict[str, str]:
    text = (BASE / name).read_text()
    return dict(re.findall(r"^([\w.-]+)==([^\s;\\]+)", text, re.MULTILINE))


# Workers


async def test_a_worker_that_listens_for_prometheus_is_healthy():
    number = free_port()
    port = await MetricsPort.open("127.0.0.1", number)
    try:
        assert await _ask_worker(number) == 0
    finally:
        await port.close()
    assert await _ask_worker(number) != 0


async def test_a_worker_without_a_port_is_not_healthy():
    assert await _ask_worker(0) == 1


async def _ask_worker(port: int) -> int | None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, HEALTHY, "worker"),
        env={**os.environ, "METRICS_PORT": str(port)},
        stderr=asyncio.subprocess.DEVNULL,
    )
    return await process.wait()
