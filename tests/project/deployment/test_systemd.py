"""The units of `deploy/systemd/`, as systemd itself reads and judges them."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from project.settings import env
from tests.programs import need_program
from tests.serving import BASE

UNITS = BASE / "deploy" / "systemd"
SERVICES = sorted(path.name for path in UNITS.glob("*.service"))
SERVERS = ["parley-worker@.service", "parley.service"]
MOST_EXPOSED = 35  # tenths, of systemd's scale from 0 to 10


def analyze(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [need_program("systemd-analyze"), *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture
def units(tmp_path: Path) -> Path:
    """Them, with a program that is there."""
    for path in UNITS.iterdir():
        text = path.read_text().replace("/opt/parley/bin/parley", "/bin/true")
        (tmp_path / path.name).write_text(text)
    return tmp_path


def test_systemd_understands_every_line(units: Path):
    done = analyze("verify", *map(str, units.iterdir()))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_has_few_rights(units: Path, name: str):
    path = str(units / name)
    done = analyze("security", "--offline=true", f"--threshold={MOST_EXPOSED}", path)
    assert done.returncode == 0, done.stdout[-300:] + done.stderr


@pytest.mark.parametrize("name", SERVERS)
def test_a_stop_waits_for_longer_than_the_drain(name: str):
    found = re.search(r"^TimeoutStopSec=(\d+)$", (UNITS / name).read_text(), re.M)
    assert found
    assert float(found[1]) > float(env.names["DRAIN_GRACE"])


@pytest.mark.parametrize("name", SERVERS)
def test_a_stop_leaves_the_programs_of_running_calls_to_the_server(name: str):
    assert "\nKillMode=mixed\n" in (UNITS / name).read_text()


@pytest.mark.parametrize("name", SERVICES)
def test_units_set_only_variables_that_are_read(name: str):
    text = (UNITS / name).read_text()
    (line,) = re.findall(r"^Environment=(.*)$", text, re.M)
    names = {each.partition("=")[0] for each in line.split()}
    assert names - {"PYTHONUNBUFFERED"} <= set(env.names)


def test_the_timer_starts_the_backup():
    assert (UNITS / "parley-backup.timer").exists()
    text = (UNITS / "parley-backup.service").read_text()
    assert "/bin/parley backup /var/backups/parley" in text
    assert "ReadWritePaths=/var/backups/parley" in text
