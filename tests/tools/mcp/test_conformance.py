"""The official tool against our client: all that a revision requires of one."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.serving import BASE
from tests.tools.mcp.servers import installed, javascript

pytestmark = pytest.mark.server

CLIENT = Path(__file__).with_name("conformance_client.py")
RELAY = CLIENT.with_name("conformance_relay.py")
#: What Parley claims beyond that.
CLAIMED = [
    "auth/client-credentials-basic",
    "auth/client-credentials-jwt",
    "json-schema-2020-12-preservation",
]
PATIENCE = 60  # seconds for one scenario, on a slow machine

_NAME = re.compile(r"^  - (\S+)$", re.MULTILINE)


@dataclass(frozen=True)
class Conformance:
    tool: list[str]
    relay: str  # the command that it starts for each scenario

    def required(self, revision: str) -> list[str]:
        requirements = _output([*self.tool, "list", "--requirements", revision])
        ours = requirements.partition("Client scenarios")[2].partition(
            "Run and reported"
        )[0]
        return _NAME.findall(ours)

    def run(self, *options: str, folder: Path) -> None:
        """Fails with the tool's whole output, unless everything passed."""
        limit = ["--timeout", str(PATIENCE * 1000), "--output-dir", str(folder)]
        command = [*self.tool, "client", "--command", self.relay, *limit, *options]
        report = _output(command)
        assert "OVERALL: PASSED" in report, report
        assert "timed out" not in report, report


def _output(command: list[str]) -> str:
    done = subprocess.run(
        command,
        cwd=BASE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PATIENCE * 2,
        check=False,
    )
    return done.stdout


@pytest.fixture(scope="module")
def conformance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Conformance]:
    """The tool, and our client loaded and waiting for it."""
    package = installed("@modelcontextprotocol/conformance")
    script = package / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
    tool = [javascript(), str(script)]
    socket = tmp_path_factory.mktemp("conformance") / "socket"
    with subprocess.Popen(
        [sys.executable, CLIENT, socket], stdout=subprocess.PIPE, text=True
    ) as client:
        assert client.stdout
        assert client.stdout.readline() == "ready\n"
        yield Conformance(tool, f"{sys.executable} -ISE {RELAY} {socket}")
        client.terminate()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
def test_all_that_a_revision_requires_passes(
    conformance: Conformance, revision: str, tmp_path: Path
):
    """One after another: all at once they starve each other of time."""
    names = conformance.required(revision)
    assert len(names) > 15
    for name in [*names, *CLAIMED]:
        at = ["--scenario", name, "--spec-version", revision, "--force"]
        conformance.run(*at, folder=tmp_path)


@pytest.mark.parametrize(
    "scenario",
    [
        "auth/2025-03-26-oauth-metadata-backcompat",
        "auth/2025-03-26-oauth-endpoint-fallback",
    ],
)
def test_servers_of_an_older_revision_are_signed_in_at(
    conformance: Conformance, scenario: str, tmp_path: Path
):
    conformance.run("--scenario", scenario, folder=tmp_path)
