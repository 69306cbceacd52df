"""What many requests begin with, and what was made of it. Pure.

A conversation asks with all that was said before, each time anew. Its turns hand the
same `Past` on, longer each time, and whoever has to look through all items (a codec
most of all) looks through those that are new and remembers the rest.

Theory: a past ends where nothing leads across. It begins with words of the user's and
ends with words of the assistant's, all its calls have their outputs, and what follows
begins with words of the user's and names no call of it. So whatever is said of a past
and of what follows is what would be said of both in one, once it is put together. Who
makes a `Thread` sees to that (`conversations.history`); a codec may still find that two
pieces of its own do not go together, and writes the whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any, TypeVar, overload

import orjson

from llm.errors import BadRequest
from llm.wire.items import Item, user_message
from llm.wire.reading import STUMBLES
from llm.wire.request import Request

V = TypeVar("V")


class Past:
    """Items that do not change, and by name what was found out about them."""

    __slots__ = ("_found", "items")

    def __init__(
        self,
        items: Sequence[Item] = (),
        found: dict[str, tuple[Any, int, Any]] | None = None,
    ) -> None:
        self.items = items
        self._found = found or {}  # the key, of how many items, and what

    def plus(self, items: Sequence[Item]) -> Past:
        """A longer one, which need not find out the same again."""
        return Past([*self.items, *items], dict(self._found))

    def fold(
        self,
        name: str,
        make: Callable[[Sequence[Item]], V],
        add: Callable[[V, V], V],
        key: Any = None,
    ) -> V:
        """What `make` says of the items, asked of each once. `add` puts what is said of
        two neighbouring pieces together. `key` is all that `make` depends on besides;
        only what was said of the last one is kept."""
        known, length, value = self._found.get(name, (None, 0, None))
        if not length or known != key:
            value = make(self.items)
        elif length < len(self.items):
            value = add(value, make(self.items[length:]))
        else:
            return value  # type: ignore[no-any-return]
        self._found[name] = (key, len(self.items), value)
        return value

    def holds(self, name: str, test: Callable[[Item], bool]) -> bool:
        """Whether any of the items passes the test of this name."""
        return self.fold(name, partial(_any, test), _either)


class Thread(Sequence[Item]):
    """The items of a request: what is past, and what is new."""

    __slots__ = ("new", "past")

    def __init__(self, past: Past, new: Sequence[Item]) -> None:
        self.past = past
        self.new = new

    def __len__(self) -> int:
        return len(self.past.items) + len(self.new)

    def __iter__(self) -> Iterator[Item]:
        return chain(self.past.items, self.new)

    @overload
    def __getitem__(self, index: int) -> Item: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Item]: ...
    def __getitem__(self, index: int | slice) -> Item | Sequence[Item]:
        if isinstance(index, slice):
            return list(self)[index]
        number = index if index >= 0 else len(self) + index
        new = number - len(self.past.items)
        if number < 0:
            raise IndexError(index)
        return self.new[new] if new >= 0 else self.past.items[number]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]


def folded(
    items: Sequence[Item],
    name: str,
    make: Callable[[Sequence[Item]], V],
    add: Callable[[V, V], V],
    key: Any = None,
) -> V:
    """`make(items)`; of those that are past as `Past.fold` has it."""
    if not isinstance(items, Thread):
        return make(items)
    return add(items.past.fold(name, make, add, key), make(items.new))


def holds(items: Sequence[Item], name: str, test: Callable[[Item], bool]) -> bool:
    """As `Past.holds`, of all items."""
    return folded(items, name, partial(_any, test), _either)


def issuer(request: Request) -> Any:
    """The issuer that its items' proofs are held against; None where there is none to
    hold, so that a change of keys changes nothing."""
    return request.issuer if holds(request.items, "proofs", _is_proven) else None


# As a wire format writes it


@dataclass(frozen=True, slots=True)
class Told:
    """The messages of a past, ready to stand before others."""

    json: bytes  # of a list, without its brackets
    ids: frozenset[str] = frozenset()  # taken, on the wire
    notes: frozenset[str] = frozenset()  # what else a codec has to know
    container: str = ""  # Anthropic's, the last one

    def before(self, messages: Sequence[Any], at: int = 0) -> list[Any]:
        """Both in one list, for orjson."""
        return [*messages[:at], orjson.Fragment(self.json), *messages[at:]]


#: What is said after a past while it is written, so that it ends as it will.
SENTINEL = user_message("?")


def written(messages: Sequence[Any]) -> bytes:
    return orjson.dumps(messages)[1:-1]


def told(
    request: Request, codec: Any, write: Callable[[Request], Told | None]
) -> Told | None:
    """What is past of `request`, as `codec` writes it; written once.

    `write` is given those items alone, with the `SENTINEL` behind them, and all of the
    request that it may heed: what else it read would not be noticed when it changes.
    None where it says so, and where nothing is past: then the whole is to be written.
    """
    if not isinstance(request.items, Thread):
        return None
    frame = Request(
        model=request.model,
        items=(),
        reasoning=request.reasoning,
        issuer=issuer(request),
    )

    def made(items: Sequence[Item]) -> Told | None:
        try:
            return write(replace(frame, items=[*items, SENTINEL]))
        except (BadRequest, *STUMBLES):  # the whole will tell why
            return None

    return request.items.past.fold("told", made, _joined, (codec, frame))


def _joined(one: Told | None, other: Told | None) -> Told | None:
    if one is None or other is None or not one.ids.isdisjoint(other.ids):
        return None
    return Told(
        b",".join((one.json, other.json)),
        one.ids | other.ids,
        one.notes | other.notes,
        other.container or one.container,
    )


def new_of(request: Request) -> Request:
    """With those items alone that are not past."""
    assert isinstance(request.items, Thread)
    return replace(request, items=request.items.new)


def _any(test: Callable[[Item], bool], items: Sequence[Item]) -> bool:
    return any(map(test, items))


def _either(one: bool, other: bool) -> bool:
    return one or other


def _is_proven(item: Item) -> bool:
    return "provider_data" in item
