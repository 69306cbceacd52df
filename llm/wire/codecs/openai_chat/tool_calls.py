"""Assembly of the tool calls in a Chat Completions answer.

In: the entries of `tool_calls`, complete or in pieces. Out: their deltas. Hosts differ:
the index may be missing, in all pieces or in the first, the same for all calls or begin
at 1; the id may be empty, the same for all calls, a number or part of every piece; the
name may come in pieces or with every piece; the arguments may be complete, an object,
null, sent again at the end, or cut off.

A piece belongs to the call of its index, or without one to that of its id. On an index
or id in use, another call begins by another id, or by a name after whole arguments.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson

from llm.errors import BadResponse
from llm.wire.codecs.openai_chat.object_end import ObjectEnd
from llm.wire.deltas import CloseDelta, Delta, ItemDelta, ProofDelta, ToolCallDelta

#: Limit for one answer: each piece is compared with all calls so far.
MAX_CALLS = 1_000
#: Fields of an entry that must be sent back unchanged; Gemini's, and LiteLLM's name.
_OPAQUE = ("extra_content", "provider_specific_fields")


class ToolCallAssembler:
    """All calls of one answer."""

    __slots__ = ("_calls", "_fed", "_is_whole")

    def __init__(self, *, is_whole: bool) -> None:
        """`is_whole`: each entry is a call, not a piece of one."""
        self._calls: list[_Call] = []
        self._is_whole = is_whole
        self._fed: set[_Call] = set()  # those of which this chunk has had an entry

    def __bool__(self) -> bool:
        return bool(self._calls)

    def feed(self, entry: dict[str, Any], *, is_first: bool) -> Iterator[Delta]:
        """`is_first`: the entry is the first of its chunk."""
        if is_first:
            self._fed = set()
        piece = _Piece(entry)
        call = None if self._is_whole else self._find(piece)
        if call is None:
            if self._calls:  # what follows ends its name
                yield from self._calls[-1].announce()
            if len(self._calls) >= MAX_CALLS:
                raise BadResponse(detail=f"More than {MAX_CALLS:,} tool calls.")
            call = _Call(len(self._calls), piece.index)
            self._calls.append(call)
        self._fed.add(call)
        yield from call.add(piece)

    def are_whole(self) -> bool:
        return all(call.is_whole() for call in self._calls)

    def close(self, *, ended: bool) -> Iterator[Delta]:
        """Close the calls.

        Unreadable arguments of an answer that the host has `ended` by itself are the
        model's mistake: the call counts as complete, and its output will report the
        error. Otherwise the call was cut off. The input of a custom call has no form
        that shows its end, so there the last call counts as cut off.
        """
        is_cut = not (ended or self._is_whole) and self._calls[-1].may_go_on()
        for call in self._calls:
            yield from call.announce_at_end()
            if call.custom:
                complete = ended or call is not self._calls[-1]
                yield call.custom_item(complete=complete)
            elif not ended and not call.is_whole():
                yield CloseDelta(call.key, complete=False)
        if is_cut:
            yield CloseDelta(self._calls[-1].key, complete=False)

    def _find(self, piece: _Piece) -> _Call | None:
        """The call that `piece` continues; None if it begins a new one."""
        candidates = [
            call
            for call in self._calls
            if piece.index is None or call.index in (piece.index, None)
        ]
        if not candidates:
            return None
        last = candidates[-1]
        if piece.id:
            return self._find_by_id(piece, candidates)
        if last.is_named_further(piece):
            return last
        # Without ids, a new call can begin only after the last one is complete.
        new = piece.name and last.name and last.is_followed_by(piece)
        return None if new else last

    def _find_by_id(self, piece: _Piece, candidates: list[_Call]) -> _Call | None:
        for call in reversed(candidates):
            if call.id == piece.id:
                over = call.is_over(piece) or self._is_another(piece, call)
                return None if over else call
        last = candidates[-1]
        # Cerebras and Mistral give every call the index 0 and its own id.
        another = last.id and (piece.name or last.index is None)
        return None if another or piece.index is None else last

    def _is_another(self, piece: _Piece, call: _Call) -> bool:
        """A host does not repeat a call in one chunk: it calls the tool twice, or two
        tools."""
        if call not in self._fed or not (piece.name and call.name):
            return False
        if piece.name != call.name:
            return not call.arguments or call.has_ended()
        if call.arguments:
            return bool(piece.arguments) and call.has_ended()
        return piece.index is None and not piece.arguments


class _Piece:
    """One entry of `tool_calls`, with defaults for missing fields."""

    __slots__ = ("arguments", "custom", "id", "index", "name", "raw")

    def __init__(self, entry: dict[str, Any]) -> None:
        custom, function = entry.get("custom") or {}, entry.get("function")
        if not isinstance(function, dict):
            function = entry  # some servers leave the inner object out
        self.custom = bool(custom.get("name") or custom.get("input")) or (
            entry.get("type") == "custom"
        )
        fields = custom if self.custom else function
        self.index = entry.get("index")
        self.id = str(entry["id"]) if entry.get("id") not in (None, "") else ""
        self.name: str = fields.get("name") or ""
        arguments = fields.get("input") if self.custom else fields.get("arguments")
        if arguments is not None and not isinstance(arguments, str):
            arguments = orjson.dumps(arguments).decode()
        self.arguments: str = arguments or ""
        self.raw: dict[str, Any] = {}
        if not entry.keys().isdisjoint(_OPAQUE):
            self.raw = {name: entry[name] for name in _OPAQUE if entry.get(name)}


class _Call:
    """A call as far as it has arrived."""

    __slots__ = (
        "_end",
        "_length",
        "arguments",
        "custom",
        "id",
        "index",
        "is_announced",
        "key",
        "name",
        "raw",
    )

    def __init__(self, number: int, index: Any) -> None:
        self.key = ("call", number)
        self.index = index
        self.id = self.name = ""
        self.custom = False
        self.arguments: list[str] = []
        self.raw: dict[str, Any] = {}
        self.is_announced = False  # its name has been emitted
        self._length = 0  # characters of the arguments
        self._end = ObjectEnd()

    def add(self, piece: _Piece) -> Iterator[Delta]:
        if self.index is None:
            self.index = piece.index
        if self._is_repeated(piece):
            return
        self.id = self.id or piece.id
        self._add_name(piece.name)
        self.custom = self.custom or piece.custom
        if piece.raw:
            self.raw |= piece.raw
        if piece.arguments:
            self.arguments.append(piece.arguments)
            self._length += len(piece.arguments)
        if self.custom:
            return  # emitted as a whole, at the end
        if not self.is_announced:
            if self.arguments:  # the name may go on until then
                yield from self.announce()
            return
        if piece.arguments:
            yield ToolCallDelta(self.key, arguments=piece.arguments)
        yield from self._prove()

    def _add_name(self, name: str) -> None:
        """A piece has the rest of the name, or all of it so far."""
        if self.is_announced or not name:
            return
        repeated = bool(self.name) and name.startswith(self.name)
        self.name = name if repeated else self.name + name

    def announce(self) -> Iterator[Delta]:
        """Emit the name and what there is of the arguments; the name has ended."""
        if self.is_announced or self.custom or not self.name:
            return
        self.is_announced = True
        yield ToolCallDelta(self.key, self.id, self.name, "".join(self.arguments))
        yield from self._prove()

    def announce_at_end(self) -> Iterator[Delta]:
        """As `announce`, and a call that has no name, so that the model hears of it."""
        yield from self.announce()
        if not (self.name or self.custom):
            yield ToolCallDelta(self.key, self.id, "", "".join(self.arguments))

    def _prove(self) -> Iterator[Delta]:
        if self.raw:
            yield ProofDelta(self.key, self.raw)
            self.raw = {}

    def may_go_on(self) -> bool:
        """Whether more of the name may follow."""
        return bool(self.name) and not (self.is_announced or self.custom)

    def is_named_further(self, piece: _Piece) -> bool:
        """Whether a piece without an id has the rest of the name. A host that names
        calls by ids begins none without; one without ids sends whole names."""
        return self.index is not None and bool(self.id) and not self.arguments

    def is_over(self, piece: _Piece) -> bool:
        """Whether a piece with the same id begins another call: the arguments are a
        whole object, and others follow."""
        if not (piece.name and self.arguments) or self.custom:
            return False
        if piece.name == self.name and not piece.arguments.strip():
            return False
        return self.has_ended() and not self._is_repeated(piece)

    def _is_repeated(self, piece: _Piece) -> bool:
        """Whether the host sends the complete arguments again, in its last chunk. Only
        pieces of about the same length are compared: short ones are many."""
        text = piece.arguments
        if self._length > 2 * len(text) or not self.arguments or self.custom:
            return False
        if piece.name not in ("", self.name) or not self.has_ended():
            return False
        return _are_equal("".join(self.arguments), text)

    def has_ended(self) -> bool:
        """Whether the arguments are an object that is complete."""
        return self._end.is_reached(self.arguments)

    def is_whole(self) -> bool:
        """Whether the arguments can be run: they are JSON, or empty."""
        text = "".join(self.arguments).strip()
        return self.custom or not text or _is_json(text)

    def is_followed_by(self, piece: _Piece) -> bool:
        """Whether a piece without an id, but with a name, begins another call."""
        if piece.name != self.name:
            return True
        if not (piece.arguments.strip() and self.arguments):
            return False
        return self.custom or self.has_ended() or self._is_other_value()

    def _is_other_value(self) -> bool:
        """Whether the arguments came at once, as a word or a text of JSON."""
        return len(self.arguments) == 1 and _is_json(self.arguments[0])

    def custom_item(self, *, complete: bool) -> ItemDelta:
        item = {
            "type": "custom_tool_call",
            "call_id": self.id,
            "name": self.name,
            "input": "".join(self.arguments),
            "status": "completed" if complete else "incomplete",
        }
        return ItemDelta(self.key, item, done=True)


def _is_json(text: str) -> bool:
    try:
        orjson.loads(text.encode(errors="replace"))
    except orjson.JSONDecodeError:
        return False
    return True


def _are_equal(one: str, other: str) -> bool:
    """Whether two texts are the same, or the same value of JSON."""
    if one == other:
        return True
    try:
        values = [orjson.loads(each.encode(errors="replace")) for each in (one, other)]
    except orjson.JSONDecodeError:
        return False
    return bool(values[0] == values[1])
