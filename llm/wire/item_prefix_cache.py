"""Cached results about the items that many requests begin with. Pure.

Every request of a conversation repeats all earlier items. The turns of a conversation
share one `CachedPrefix`, which grows with each turn, and code that has to look through
all items (codecs above all) processes only the new ones and reuses the cached results
for the rest.

Theory: a prefix ends where nothing refers across the border. It begins with a user
message and ends with a message of the assistant, all its calls have outputs, and what
follows begins with a user message and names no call of the prefix. Therefore the
results for the prefix and for the rest can be combined into the result for all items.
The code that creates a `SplitItems` guarantees this (`conversations.turns.history`); if
a codec finds that its two encoded pieces still conflict, it encodes all items anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any, TypeVar, cast, overload

import orjson

from llm.errors import BadRequest
from llm.wire.delta_reader import DECODE_ERRORS
from llm.wire.items import Item, user_message
from llm.wire.request import Request

V = TypeVar("V")


class CachedPrefix:
    """Items that do not change, with results that were computed from them, by name."""

    __slots__ = ("_results", "items")

    def __init__(
        self,
        items: Sequence[Item] = (),
        results: dict[str, tuple[Any, int, Any]] | None = None,
    ) -> None:
        self.items = items
        self._results = results or {}  # key, number of items covered, result

    def extend(self, items: Sequence[Item]) -> CachedPrefix:
        """A longer prefix, which keeps the results so far."""
        return CachedPrefix([*self.items, *items], dict(self._results))

    def fold(
        self,
        name: str,
        make: Callable[[Sequence[Item]], V],
        add: Callable[[V, V], V],
        key: Any = None,
    ) -> V:
        """Return `make(items)`, calling `make` only for items that it has not covered.

        `add` combines the results of two neighbouring pieces. `key` holds everything
        else that `make` depends on; only the result for the latest key is stored.
        """
        known, length, value = self._results.get(name, (None, 0, None))
        if not length or known != key:
            value = make(self.items)
        elif length < len(self.items):
            value = add(value, make(self.items[length:]))
        else:
            return cast(V, value)
        self._results[name] = (key, len(self.items), value)
        return value

    def has_item(self, name: str, test: Callable[[Item], bool]) -> bool:
        """Whether any item passes `test`. `name` identifies the test in the cache."""
        return self.fold(name, partial(_any, test), _either)


class SplitItems(Sequence[Item]):
    """The items of a request: a cached prefix, and the new items after it."""

    __slots__ = ("new", "prefix")

    def __init__(self, prefix: CachedPrefix, new: Sequence[Item]) -> None:
        self.prefix = prefix
        self.new = new

    def __len__(self) -> int:
        return len(self.prefix.items) + len(self.new)

    def __iter__(self) -> Iterator[Item]:
        return chain(self.prefix.items, self.new)

    @overload
    def __getitem__(self, index: int) -> Item: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Item]: ...
    def __getitem__(self, index: int | slice) -> Item | Sequence[Item]:
        if isinstance(index, slice):
            return list(self)[index]
        number = index if index >= 0 else len(self) + index
        new = number - len(self.prefix.items)
        if number < 0:
            raise IndexError(index)
        return self.new[new] if new >= 0 else self.prefix.items[number]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)


def fold_items(
    items: Sequence[Item],
    name: str,
    make: Callable[[Sequence[Item]], V],
    add: Callable[[V, V], V],
    key: Any = None,
) -> V:
    """Return `make(items)`; for a cached prefix as `CachedPrefix.fold` does."""
    if not isinstance(items, SplitItems):
        return make(items)
    return add(items.prefix.fold(name, make, add, key), make(items.new))


def has_item(items: Sequence[Item], name: str, test: Callable[[Item], bool]) -> bool:
    """Whether any item passes `test`, as `CachedPrefix.has_item`."""
    return fold_items(items, name, partial(_any, test), _either)


def proof_issuer(request: Request) -> Any:
    """The request's issuer if any item has a proof, else None.

    None means that a change of API keys does not invalidate cached results.
    """
    return request.issuer if has_item(request.items, "proofs", _has_proof) else None


# Encoding for a wire format


@dataclass(frozen=True, slots=True)
class EncodedPrefix:
    """The encoded messages of a prefix, to be put before the new ones."""

    json: bytes  # of a JSON list, without its brackets
    ids: frozenset[str] = frozenset()  # ids that the messages use
    notes: frozenset[str] = frozenset()  # codec-specific flags
    container: str = ""  # Anthropic's, the last one

    def prepend_to(self, messages: Sequence[Any], at: int = 0) -> list[Any]:
        """Prefix and `messages` as one list, for orjson."""
        return [*messages[:at], orjson.Fragment(self.json), *messages[at:]]


#: A user message that follows the prefix while it is encoded, so that the prefix gets
#: its final form.
SENTINEL = user_message("?")


def encode_messages(messages: Sequence[Any]) -> bytes:
    return orjson.dumps(messages)[1:-1]


def encode_prefix(
    request: Request, codec: Any, write: Callable[[Request], EncodedPrefix | None]
) -> EncodedPrefix | None:
    """Encode the cached prefix of `request` for `codec`; done once per item.

    `write` gets the prefix's items with the `SENTINEL` after them, and only those
    fields of the request that it may depend on, because a change of any other field
    would not be noticed. None if `write` returns None or the request has no prefix:
    then the caller encodes all items.
    """
    if not isinstance(request.items, SplitItems):
        return None
    frame = Request(
        model=request.model,
        items=(),
        reasoning=request.reasoning,
        issuer=proof_issuer(request),
    )

    def encode(items: Sequence[Item]) -> EncodedPrefix | None:
        try:
            return write(replace(frame, items=[*items, SENTINEL]))
        except (
            BadRequest,
            *DECODE_ERRORS,
        ):  # encoding all items raises the proper error
            return None

    return request.items.prefix.fold("encoded", encode, _join, (codec, frame))


def _join(
    one: EncodedPrefix | None, other: EncodedPrefix | None
) -> EncodedPrefix | None:
    if one is None or other is None or not one.ids.isdisjoint(other.ids):
        return None
    return EncodedPrefix(
        b",".join((one.json, other.json)),
        one.ids | other.ids,
        one.notes | other.notes,
        other.container or one.container,
    )


def without_prefix(request: Request) -> Request:
    """`request` with only the items that are not in the cached prefix."""
    assert isinstance(request.items, SplitItems)
    return replace(request, items=request.items.new)


def _any(test: Callable[[Item], bool], items: Sequence[Item]) -> bool:
    return any(map(test, items))


def _either(one: bool, other: bool) -> bool:
    return one or other


def _has_proof(item: Item) -> bool:
    return "provider_data" in item
