"""The code of an earlier version, and processes that run it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.serving import BASE, SpawnedProcess

#: The version that is replaced by this one. At a release, set it to the commit of the
#: release before; earlier if operators may skip one. The commit must be in the history
#: of the branch, and its code must run with the packages of requirements.txt.
OLD = "f94250d311e5b439fc245c498b46085c6f85f798"


class NoHistory(Exception):
    """The tests do not run in a git checkout."""


class MissingCommit(Exception):
    def __init__(self, commit: str, reason: str) -> None:
        super().__init__(
            f"the earlier version {commit} is not in this checkout ({reason.strip()});"
            " fetch its history (`git fetch --unshallow`), or correct OLD in"
            f" {Path(__file__).relative_to(BASE)}"
        )


def unpack(folder: Path, commit: str = OLD) -> Path:
    """Raises NoHistory, MissingCommit."""
    if not (BASE / ".git").exists():
        raise NoHistory
    packed = subprocess.run(
        # Whoever owns the checkout: nothing in it is executed by that.
        ["git", "-c", "safe.directory=*", "archive", "--format=tar", commit],
        cwd=BASE,
        capture_output=True,
        check=False,
    )
    if packed.returncode:
        raise MissingCommit(commit, packed.stderr.decode())
    folder.mkdir(parents=True)
    subprocess.run(["tar", "-x", "-C", folder], input=packed.stdout, check=True)
    return folder


class OldServer(SpawnedProcess):
    """It is not forked: what it would be forked from has this version's modules."""

    def __init__(
        self, base: Path, data: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(data, environment)
        self.base = base

    def arguments(self) -> list[str]:
        """As an operator starts it: its log has faults of the server alone."""
        return [sys.executable, str(self.base / "manage.py"), self.command]

    @property
    def log_path(self) -> Path:
        return self.data.with_name("old.log")


class OldWorker(OldServer):
    command = "worker"
    last_line = "The worker is running"
