"""Isolated tools that attack the server; each returns what it could do."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from tools.registry import tool


@tool(isolate=True)
def look_around() -> dict:
    """All that is in reach: environments, processes, files, users."""
    readable = []
    for each in Path("/proc").glob("[0-9]*/environ"):
        try:
            each.read_bytes()
            readable.append(each.parent.name)
        except OSError:
            continue
    return {
        "readable": readable,
        "environ": Path("/proc/self/environ").read_bytes().decode(errors="replace"),
        "own": dict(os.environ),
        "folder": os.getcwd(),
        "files": os.listdir(),
        "sockets": [str(each) for each in Path("/run").rglob("*") if each.is_socket()],
    }


@tool(isolate=True)
def read_files(paths: list[str]) -> dict:
    """Read files, or say why not."""
    found = {}
    for path in paths:
        try:
            found[path] = Path(path).read_bytes().decode(errors="replace")
        except OSError as exc:
            found[path] = type(exc).__name__
    return found


@tool(isolate=True)
def write_file(path: str, mebibytes: int) -> str:
    """Write a file of this size."""
    try:
        with open(path, "wb") as file:
            for _ in range(mebibytes):
                file.write(bytes(2**20))
        return "written"
    except OSError as exc:
        return type(exc).__name__


@tool(isolate=True)
def open_files(count: int) -> int:
    """Open so many files."""
    opened = []
    try:
        for _ in range(count):
            opened.append(open(os.devnull))  # noqa: SIM115 - it is to leave them open
    except OSError:
        pass
    number = len(opened)
    for each in opened:
        each.close()
    return number


@tool(isolate=True)
def connect(port: int) -> str:
    """Connect to this machine."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
        return "connected"
    except OSError as exc:
        return type(exc).__name__


@tool(isolate=True)
def multiply(count: int, mark: str) -> int:
    """Start so many processes, each in a session of its own."""
    started = 0
    command = [sys.executable, "-c", "import time; time.sleep(1000)", mark]
    for _ in range(count):
        try:
            subprocess.Popen(command, start_new_session=True)
        except OSError:
            break
        started += 1
    return started


@tool(isolate=True)
def swallow(mebibytes: int) -> int:
    """Take memory, bit by bit, and give none back."""
    kept = [bytearray(2**20) for _ in range(mebibytes)]
    return len(kept)


@tool(isolate=True)
def print_forever() -> str:
    """Print without end."""
    line = "x" * 65_536
    while True:
        print(line)


@tool(isolate=True)
def spin() -> str:
    """Use the processor without end."""
    while True:
        pass


@tool(isolate=True)
def send_nonsense() -> str:
    """Write to every open file, the pipe to the parent too."""
    for number in range(3, 64):
        try:
            os.write(number, b"\0\0\0\x02[]")
        except OSError:
            continue
    time.sleep(1000)
    return ""


@tool(isolate=True)
def kill_the_parent() -> str:
    """Kill the process that started this one, and all others."""
    if os.getpid() != 1:
        return "no sandbox"  # here it would kill the machine's own processes
    tried = []
    for pid in (os.getppid(), -1):
        if pid:
            try:
                os.kill(pid, signal.SIGKILL)
                tried.append(str(pid))
            except OSError as exc:
                tried.append(type(exc).__name__)
    return " ".join(tried)


@tool(isolate=True)
def undo_the_sandbox(path: str) -> list[str]:
    """Unmount what hides the path, also as the root of another namespace."""
    commands = (
        ["umount", path],
        ["umount", "/proc"],
        ["unshare", "--user", "--map-root-user", "--mount", "umount", path],
        ["mount", "-o", "remount,rw", str(Path(__file__).parent.parent.parent)],
    )
    done = [subprocess.run(each, capture_output=True).returncode for each in commands]
    return ["refused" if code else "done" for code in done]


@tool(isolate=True)
def return_many(count: int) -> list:
    """So many values, in little memory of its own."""
    return [{}] * count


def write_frame(frame: bytes) -> None:
    """To every open file, the pipe to the parent too, and wait for the end."""
    for number in range(3, 64):
        try:
            os.write(number, len(frame).to_bytes(4, "big"))
        except OSError:
            continue
        left = memoryview(frame)
        while left:
            left = left[os.write(number, left) :]
    time.sleep(1000)


@tool(isolate=True)
def report_many(count: int) -> str:
    """Progress that is no text but so many values."""
    write_frame(b'{"progress":[' + b",".join([b"{}"] * count) + b"]}")
    return ""


@tool(isolate=True)
def invent_a_traceback(length: int) -> str:
    """A failure whose traceback is a text of this length."""
    where = b"x" * length
    write_frame(
        b'{"error":{"module":"builtins","name":"KeyError","message":null,"where":"'
        + where
        + b'"}}'
    )
    return ""


@tool(isolate=True)
def forge_the_log() -> str:
    """Print what looks like a line of the log."""
    sys.stderr.write('{"level": "ERROR", "message": "forged"}\nhalf\r{"level": ')
    return "done"
