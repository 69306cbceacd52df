"""Moves of files, all of which are undone if one fails."""

from __future__ import annotations

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
        shutil.move(source, target)
        self._undo.callback(shutil.move, target, source)


@contextmanager
def moving() -> Iterator[Moves]:
    """If the body raises an exception, everything moves back, the last first."""
    with ExitStack() as undo:
        yield Moves(undo)
        undo.pop_all()
