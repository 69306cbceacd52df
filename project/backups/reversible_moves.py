"""Moves of files, all of which are undone if one fails; not if the process is killed
(`project.backups.interrupted_restore`)."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path


class Moves:
    def __init__(self, undo: ExitStack) -> None:
        self._undo = undo

    def exchange(self, source: Path, target: Path, former: Path) -> None:
        """Move `source` to `target`, and what was there into the folder `former`."""
        if source.exists():
            self.set_aside(target, former)
            target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._move(source, target)

    def set_aside(self, path: Path, former: Path) -> None:
        """Move it into the folder `former` if it exists."""
        if path.exists():
            former.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._move(path, former / path.name)

    def _move(self, source: Path, target: Path) -> None:
        if target.exists():
            raise FileExistsError(errno.EEXIST, "in the way", str(target))
        try:
            source.rename(target)
        except OSError:  # on another disk
            _copy(source, target)
        self._undo.callback(_bring_back, target, source)
        _delete(source)


@contextmanager
def moving() -> Iterator[Moves]:
    """If the body raises an exception, everything moves back, the last first."""
    with ExitStack() as undo:
        yield Moves(undo)
        undo.pop_all()


def _copy(source: Path, target: Path) -> None:
    """All of it or nothing."""
    with ExitStack() as incomplete:
        incomplete.callback(_delete, target)
        if source.is_dir() and not source.is_symlink():
            shutil.copytree(source, target, symlinks=True)
        else:
            shutil.copy2(source, target, follow_symlinks=False)
        incomplete.pop_all()


def _bring_back(target: Path, source: Path) -> None:
    _delete(source)  # what is left of it, or the move would go into that folder
    shutil.move(target, source)


def _delete(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
