"""Which isolation this system offers to isolated tools, and the command for it.

With user namespaces (`unshare`, `setpriv` and `mount` of util-linux) a process has no
network, sees no other process, and finds the places that are hidden from it empty; what
it stores is in memory and gone with it. It has no capabilities, so it can undo none of
that. Elsewhere, as in most containers, only the limits and the clean environment of
`tools.python.limits` and `tools.python.isolated_call` hold.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from shutil import which
from threading import Lock

from django.utils.translation import gettext_lazy as _

from tools.conf import settings

logger = logging.getLogger(__name__)

SIZE = 64  # MiB of the temporary folder
_PROGRAMS = ("unshare", "setpriv", "mount", "sh")
#: Sockets of databases and of container engines are files below these.
_SHARED_FOLDERS = ("/run", "/var/run", "/var/tmp", "/dev/shm")
_UNSHARE = (
    *("unshare", "--user", "--map-root-user", "--mount", "--pid", "--net", "--ipc"),
    *("--fork", "--kill-child", "--mount-proc", "--"),
)
_DROP_RIGHTS = (
    *("setpriv", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs", "--"),
)
#: Its arguments: the temporary folder, then lists that end with "--": what to make
#: read-only; folders with code inside places to hide; these places; other places to
#: hide; and the command. The code is bound to the temporary folder while the places
#: around it are covered.
_MOUNT = f"""
set -e
hide() {{
  if [ -d "$1" ]; then mount -t tmpfs -o size=16m parley "$1"
  elif [ -e "$1" ]; then mount --bind /dev/null "$1"; fi
}}
bind_read_only() {{
  mount --bind "$1" "$2"
  mount -o remount,bind,ro "$2"
}}
folder="$1"
shift
while [ "$1" != -- ]; do bind_read_only "$1" "$1"; shift; done
shift
mount -t tmpfs -o size=1m parley "$folder"
cd "$folder"
count=0
while [ "$1" != -- ]; do
  count=$((count + 1))
  mkdir "$count"
  mount --bind "$1" "$count"
  printf %s "$1" > "$count.path"
  shift
done
shift
while [ "$1" != -- ]; do hide "$1"; shift; done
shift
while [ "$count" -gt 0 ]; do
  path=$(cat "$count.path")
  mkdir -p "$path"
  bind_read_only "./$count" "$path"
  count=$((count - 1))
done
while [ "$1" != -- ]; do hide "$1"; shift; done
shift
mkdir -p "$folder"
mount -t tmpfs -o size={SIZE}m,mode=700 parley "$folder"
cd "$folder"
exec {" ".join(_DROP_RIGHTS)} "$@"
"""
_PROBE_TIMEOUT = 20  # seconds
REFUSAL_COUNTS = 30  # seconds
_LONGEST_REFUSAL = 500  # characters of it in the log

IN_FORCE = _(
    "sandbox: no network, no other processes, no database; data folder, temporary"
    " folders and sockets are hidden; limits of CPU time, memory, files and processes"
)
LIMITS_ONLY = _(
    "limits of CPU time, memory, files and processes, and a clean environment; this"
    " system offers no user namespaces, so the network and the files of this account"
    " are within reach"
)
NO_CALLS = _(
    "all calls fail: this system does not start the sandbox, and"
    " ISOLATED_REQUIRE_SANDBOX demands it"
)


class SandboxProbe:
    """Tries the sandbox until it starts once.

    A refusal counts for REFUSAL_COUNTS seconds. If it counted for good, one that a busy
    machine caused would leave the network and the account's files to isolated tools for
    the life of the process. If it did not count at all, each call and each page of
    staff would wait for another attempt, up to `_PROBE_TIMEOUT` seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = Lock()
        self._starts = False
        self._refused_at: float | None = None

    def ask(self) -> bool:
        if self._starts or self._is_refused():
            return self._starts
        with self._lock:
            # Another thread may have tried while this one waited for the lock.
            if not self._starts and not self._is_refused():
                self._try()
            return self._starts

    def _is_refused(self) -> bool:
        at = self._refused_at
        return at is not None and self._clock() - at < REFUSAL_COUNTS

    def _try(self) -> None:
        refusal = _try_sandbox()
        is_first = self._refused_at is None
        if refusal and is_first:
            logger.warning("the sandbox of isolated tools does not start: %s", refusal)
        elif not refusal and not is_first:
            logger.warning("isolated tools run in the sandbox from now on")
        self._starts = not refusal
        self._refused_at = self._clock() if refusal else None


_probe = SandboxProbe()


def is_available() -> bool:
    """Whether this system starts the sandbox. It takes up to _PROBE_TIMEOUT seconds, if
    programs start slowly, until it has started once; a refusal counts for
    REFUSAL_COUNTS seconds."""
    return _probe.ask()


def _try_sandbox() -> str:
    """Why it does not start; empty if it does."""
    if sys.platform != "linux":
        return f"{sys.platform} has no user namespaces"
    if missing := [each for each in _PROGRAMS if not which(each)]:
        return f"there is no {', '.join(missing)}"
    environment = {
        "PATH": os.environ.get("PATH", os.defpath),
        "PYTHONPATH": code_path(),
    }
    program = [sys.executable, "-P", "-c", "import encodings, tools"]
    try:
        with tempfile.TemporaryDirectory(prefix="parley-tool-") as folder:
            done = subprocess.run(
                wrap(program, folder),
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_PROBE_TIMEOUT,
            )
    except (OSError, subprocess.TimeoutExpired) as exc:
        return type(exc).__name__
    if done.returncode == 0:
        return ""
    text = done.stderr.decode(errors="replace").strip()[-_LONGEST_REFUSAL:]
    return f"exit status {done.returncode}, {text!r}"


def describe() -> str:
    """In words for staff and for the log."""
    if is_available():
        return str(IN_FORCE)
    return str(NO_CALLS if settings.ISOLATED_REQUIRE_SANDBOX else LIMITS_ONLY)


def wrap(command: Sequence[str], folder: str) -> list[str]:
    """The command that runs another one in the sandbox, in an empty folder there."""
    code = _code_folders()
    around, others = _split_hidden(code)
    inside = [each for each in code if any(outer in each.parents for outer in around)]
    lists: list[list[Path]] = [code, inside, around, others]
    return [
        *_UNSHARE,
        *("sh", "-c", _MOUNT, "parley-tool", folder),
        *chain.from_iterable([*map(str, paths), "--"] for paths in lists),
        *command,
    ]


def code_path() -> str:
    """PYTHONPATH of a process that imports what this one does."""
    return os.pathsep.join(each or os.getcwd() for each in sys.path)


def _code_folders() -> list[Path]:
    """Folders with code, without those inside another."""
    found = {*sys.path, sys.prefix, sys.base_prefix, str(Path(sys.executable).parent)}
    resolved = {Path(each or os.getcwd()).resolve() for each in found}
    folders = sorted(each for each in resolved if each.is_dir())
    return [each for each in folders if not any(x in each.parents for x in folders)]


def _split_hidden(code: Sequence[Path]) -> tuple[list[Path], list[Path]]:
    """The places to hide that have code inside, and the others. A folder of code itself
    stays visible."""
    places = [*settings.ISOLATED_HIDDEN_PATHS, *_SHARED_FOLDERS, tempfile.gettempdir()]
    places.append(str(Path.home()))
    found = dict.fromkeys(Path(each).resolve() for each in places)
    hidden = [path for path in found if path.exists() and path not in code]
    around = [path for path in hidden if any(path in each.parents for each in code)]
    outermost = [each for each in around if not any(x in each.parents for x in around)]
    return outermost, [path for path in hidden if path not in around]
