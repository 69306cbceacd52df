"""A real `manage.py serve` in a process of its own, for tests from end to end.

`ServerProcess` is what the `server` and `shared_server` fixtures give. Its environment
is made from nothing, so that what the developer has set does not show in the tests.
"""

from __future__ import annotations

import itertools
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from tests import forking
from tests.forking import ForkedProcess

Process = subprocess.Popen[str] | ForkedProcess
BASE = Path(__file__).resolve().parent.parent
PASSWORD = "tests-know-this-one"
FORKED = {"DJANGO_SETTINGS_MODULE": "tests.settings_served"}
PATIENCE = 180  # seconds until a silent process is considered dead


class ServerProcess:
    """Stopped at first. `start` it, `kill` or `stop` it, `start` it again.

    `environment` is read at each start; change it in between as you like.
    """

    #: Fork it from a process that has imported the libraries; see `tests.forking`.
    is_forked = False
    base = BASE  # the folder of its code
    command = "serve"
    options: tuple[str, ...] = ()  # of the command
    last_line = "Next: "  # how the last line of its start begins

    def __init__(self, data: Path, environment: Mapping[str, str] | None = None):
        self.data = data
        self.port = free_port()
        self.admin_password = PASSWORD
        self.banner: list[str] = []  # output of the last start
        self.process: Process | None = None
        self.environment = {
            **{
                name: os.environ[name]
                for name in ("PATH", "HOME", "LANG")
                if name in os.environ
            },
            "PARLEY_DATA": str(data),
            "PARLEY_ADMIN_PASSWORD": PASSWORD,
            "PARLEY_READ_DOTENV": "false",
            "PORT": str(self.port),
            "DRAIN_GRACE": "5",
            "USER_CONNECTIONS": "0",  # storms open thousands
            "TOKEN_CONNECTIONS": "0",
            "USER_REQUESTS_PER_MINUTE": "0",  # a suite is one user
            "MAX_LAG": "0",  # a loaded machine is slow, not wrong
            "MAX_START_WAIT": "0",
            "AUTO_TITLES": "false",  # one more call of the hosts
            **(FORKED if self.is_forked else {}),
            **(environment or {}),
        }

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def ws_url(self) -> str:
        return f"ws://127.0.0.1:{self.port}"

    @property
    def log_path(self) -> Path:
        """What all its starts wrote to stderr."""
        return self.data.with_name(f"{self.data.name}.log")

    def arguments(self) -> list[str]:
        return manage(self.command, *self.options, base=self.base)

    def start(self) -> ServerProcess:
        """Returns once connections are answered."""
        assert self.process is None, "it runs already"
        self.process = self._fork() if self.is_forked else self._spawn()
        self.banner = self._read_banner(self.process)
        return self

    def _fork(self) -> ForkedProcess:
        return ForkedProcess(
            [str(BASE / "manage.py"), self.command, *self.options],
            folder=BASE,
            environment=self.environment,
            stderr=self.log_path,
        )

    def _spawn(self) -> subprocess.Popen[str]:
        with self.log_path.open("a") as log:
            return subprocess.Popen(
                self.arguments(),
                cwd=self.base,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )

    def stop(self) -> int:
        """Drain it and wait for its end. Returns its exit code."""
        return self._end(signal.SIGTERM)

    def kill(self) -> int:
        """End it at once, as a crash would."""
        return self._end(signal.SIGKILL)

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self._signal(signal.SIGCONT)

    def restart(self) -> ServerProcess:
        """After a crash or without one."""
        if self.process:
            self.stop()
        return self.start()

    def refused(self, *arguments: str, **environment: str) -> str:
        """Its output when it exits instead of serving."""
        done = subprocess.run(
            manage(self.command, *arguments, base=self.base),
            cwd=self.base,
            env={**self.environment, **environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert done.returncode == 1
        assert done.stdout == ""
        return done.stderr

    def manage(self, *arguments: str) -> str:
        """Run a management command beside it. Returns what it printed."""
        if self.is_forked:
            done = forking.run(
                [str(BASE / "manage.py"), *arguments],
                folder=BASE,
                environment=self.environment,
                timeout=PATIENCE,
            )
        else:
            done = subprocess.run(
                manage(*arguments, base=self.base),
                cwd=self.base,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=PATIENCE,
                check=False,
            )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def create_token(self, user: str = "admin") -> str:
        scopes = ("chat", "gateway", "tools", "approve")
        named = [part for scope in scopes for part in ("--scope", scope)]
        return self.manage("create_token", user, *named).splitlines()[-1]

    def log(self) -> str:
        return self.log_path.read_text()

    def faults(self) -> list[str]:
        """The lines of the log but those of the watchdog: other programs stall too."""
        lines = self.log().splitlines()
        return [line for line in lines if "project.server.watchdog" not in line]

    def _signal(self, number: signal.Signals) -> None:
        assert self.process
        self.process.send_signal(number)

    def _end(self, number: signal.Signals) -> int:
        assert self.process, "it does not run"
        process, self.process = self.process, None
        with process, Deadline(process):
            process.send_signal(number)
            return process.wait()

    def _read_banner(self, process: Process) -> list[str]:
        assert process.stdout
        lines = []
        with Deadline(process):
            for line in process.stdout:
                lines.append(line.rstrip("\n"))
                if line.startswith(self.last_line):
                    return lines
        self._end(signal.SIGKILL)
        raise AssertionError(f"The server did not start:\n{self.log()}")


class SpawnedProcess(ServerProcess):
    """A server by its own command, as its user starts it."""

    is_forked = False


class DaphneProcess(SpawnedProcess):
    """`manage.py runserver`, which serves with Daphne."""

    command = "runserver"
    last_line = "Quit the server "

    def start(self) -> DaphneProcess:
        self.environment["PYTHONUNBUFFERED"] = "1"
        self.options = ("--noreload", str(self.port))
        super().start()
        deadline = time.monotonic() + PATIENCE
        while not _is_listening(self.port):  # it prints its last line before that
            assert time.monotonic() < deadline, self.log()
            time.sleep(0.05)  # another process: no event to wait for
        return self


class BareDaphneProcess(DaphneProcess):
    """Daphne's own command, which prints nothing on stdout."""

    def arguments(self) -> list[str]:
        application = "project.asgi:application"
        return [sys.executable, "-m", "daphne", "-p", str(self.port), application]

    def _read_banner(self, process: Process) -> list[str]:
        return []


def _is_listening(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except ConnectionRefusedError:
        return False
    return True


class Deadline:
    """Kill a process that takes too long, so that no test hangs on it."""

    def __init__(self, process: Process) -> None:
        self._timer = threading.Timer(PATIENCE, process.kill)

    def __enter__(self) -> None:
        self._timer.start()

    def __exit__(self, *exc_info: object) -> None:
        self._timer.cancel()
        self._timer.join()


def manage(*arguments: str, base: Path = BASE) -> list[str]:
    return [
        sys.executable,
        "-W",
        "error::ResourceWarning",
        str(base / "manage.py"),
        *arguments,
    ]


#: Below the ports that the system gives to outgoing connections: one of those could
#: take the port before its server starts.
_PORTS = range(12_000, 32_000)
_numbers = itertools.count(os.getpid() * 97)  # test workers begin at different ports


def free_port() -> int:
    for number in itertools.islice(_numbers, len(_PORTS)):
        port = _PORTS[number % len(_PORTS)]
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("no port is free")
