"""`PerLoop`: a value for each event loop, created when that loop first uses it."""

from __future__ import annotations

from asyncio import AbstractEventLoop, get_running_loop
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class _Values(dict[AbstractEventLoop, T]):
    """Creates the value of a loop when it is first looked up."""

    def __init__(self, make: Callable[[], T]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, loop: AbstractEventLoop) -> T:
        for ended in [each for each in self if each.is_closed()]:
            del self[ended]
        self[loop] = value = self._make()
        return value


class PerLoop(Generic[T]):
    """A value for each event loop. A call of this object returns the running loop's,
    created when it is first needed. Values of closed loops are removed.

    Connections, timers and tasks belong to the loop that created them, and a process
    may have several: that of the server, and those of `async_to_sync`. What each
    request needs is looked up by its loop in `of`, which costs less than a call.
    """

    def __init__(self, make: Callable[[], T]) -> None:
        self.of = _Values(make)

    def __call__(self) -> T:
        return self.of[get_running_loop()]

    def __len__(self) -> int:
        return len(self.of)

    def items(self) -> list[tuple[AbstractEventLoop, T]]:
        """The loops and their values. Callable in any thread."""
        return list(self.of.items())

    def pop(self) -> T | None:
        """Forget the running loop's value and return it, if it has one."""
        return self.of.pop(get_running_loop(), None)
