"""`manage.py` in a process that is forked from one with `tests.preloaded` imported.

Those imports are half of the CPU time in which a server starts, and the suite starts
some hundreds. The rest is as in production: each process reads its own settings
(`tests.settings_served` unless the test names others) and starts by the same command.
"""

from __future__ import annotations

import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["tests.preloaded"])


class ForkedProcess:
    """A process with the part of `subprocess.Popen` that tests use."""

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        folder: Path,
        environment: Mapping[str, str],
        stderr: Path,
    ) -> None:
        self.args = arguments
        self.stdout, self._process = _fork(arguments, folder, environment, stderr)
        assert self._process.pid
        self.pid = self._process.pid

    def __enter__(self) -> ForkedProcess:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stdout.close()
        self.wait()

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if self._process.exitcode is None:
            assert timeout is not None
            raise subprocess.TimeoutExpired(self.args, timeout)
        return self._process.exitcode

    def communicate(self) -> tuple[str, None]:
        """Read the rest of the output and wait for the end."""
        with self.stdout as output:
            text = output.read()
        self.wait()
        return text, None

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def run(
    arguments: Sequence[str],
    *,
    folder: Path,
    environment: Mapping[str, str],
    timeout: float,
) -> subprocess.CompletedProcess[str]:
    """As `subprocess.run` with its output captured as text."""
    with tempfile.TemporaryDirectory() as errors:
        stderr = Path(errors) / "stderr"
        process = ForkedProcess(
            arguments, folder=folder, environment=environment, stderr=stderr
        )
        with process:
            output = process.stdout.read()
            code = process.wait(timeout)
        return subprocess.CompletedProcess(arguments, code, output, stderr.read_text())


def kill_all() -> None:
    """Processes that a failed test has left, which would stop the test run from
    ending."""
    for child in multiprocessing.active_children():
        child.kill()


def _fork(
    arguments: Sequence[str],
    folder: Path,
    environment: Mapping[str, str],
    stderr: Path,
) -> tuple[IO[str], multiprocessing.process.BaseProcess]:
    with tempfile.TemporaryDirectory() as pipes:
        stdout = Path(pipes) / "stdout"
        os.mkfifo(stdout)
        process = _context.Process(
            target=_manage,
            args=(
                [*arguments],
                str(folder),
                {**environment},
                str(stdout),
                str(stderr),
            ),
        )
        process.start()
        return stdout.open(), process  # which the child opens too


def _manage(
    arguments: list[str],
    folder: str,
    environment: dict[str, str],
    stdout: str,
    stderr: str,
) -> None:
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
    for number, path in ((1, stdout), (2, stderr)):
        file = os.open(path, flags if number == 2 else os.O_WRONLY, 0o666)
        os.dup2(file, number)
        os.close(file)
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    warnings.simplefilter("error", ResourceWarning)
    sys.argv = [*arguments]
    sys.path[0] = folder
    runpy.run_path(arguments[0], run_name="__main__")
