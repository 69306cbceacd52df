"""Proofs of a host's items in an answer of an API that has no fields for them.

In: the items of an answer and their proofs. Out: entries that say to which item each
proof belongs; the caller seals them into a text, which a client stores and returns. And
back: the items of an assistant's message that a client returns, and the entries that
came with it, become the host's own items, in their order and with their proofs. A text
or a call that the client has changed loses its proof; reasoning, which a client need
not return, is restored from its entry alone. So are the calls of this server's own
tools and their outputs, which the client has not seen: proofs cover them too.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NotRequired, Protocol, TypedDict

import orjson

from llm.wire.facades.client_visibility import PICTURE, Audience
from llm.wire.items import Issuer, Item, new_id, text_of

_CALLS = frozenset({"function_call", "custom_tool_call"})
_SHOWN = _CALLS | {"message"}
_OUTPUT = "function_call_output"
#: Characters of outputs of this server's tools that are sealed: a client sends them
#: with each later request.
MAX_OUTPUTS = 256 * 1024
_GAP = "\n\n"  # that a writer puts between texts where tools ran between them
#: Fields of a raw block that its host wants back unchanged.
_OPAQUE = frozenset(
    {
        "encrypted_content",
        "reasoning_encrypted",
        "reasoning_opaque",
        "signature",
        "thoughtSignature",
        "thought_signature",
    }
)


class Entry(TypedDict):
    """One item of an answer."""

    at: int  # its place in the output
    type: str
    of: str  # names what the client returns of it; "" for nothing
    length: int  # of a message's text
    raw: Any  # the proof
    item: NotRequired[Item]  # which the client has not seen


class Sealed(TypedDict):
    """What is sealed: entries of one answer."""

    answer: str  # its id
    issuer: Issuer
    entries: list[Entry]


class Sealing(Protocol):
    """Seals the proofs of one answer."""

    #: Whether all of them are sealed at the end, and none of an item before: calls that
    #: the client does not see may follow.
    @property
    def at_end(self) -> bool: ...

    def seal(
        self,
        output: Sequence[Item],
        audience: Audience,
        *,
        skipped: Iterable[str] = (),
    ) -> str:
        """The sealed text of `entries_of`; "" if there is nothing to seal."""
        ...

    def seal_item(self, at: int, item: Item, audience: Audience) -> str:
        """The same for one item of the output, which is number `at`."""
        ...

    def seal_signature(self, at: int, call: Item, audience: Audience) -> str:
        """The same for a call that Gemini has signed; "" for others."""
        ...


_NO_THOUGHTS: Mapping[tuple[str, int], Item] = {}

#: The entries in a text; None if it is not one of this server for this user.
OpenSeal = Callable[[str], Sealed | None]


def entries_of(
    output: Sequence[Item],
    proofs: Mapping[str, Any],
    audience: Audience,
    *,
    skipped: Iterable[str] = (),
) -> list[Entry]:
    """One for each item, or none if the host wants nothing back. `skipped` are the ids
    of items whose entries the client has already.

    If the outputs of this server's tools are too long, only the proofs after them.
    """
    seen = set(skipped)
    if not any(_is_wanted(item, proofs.get(item["id"])) for item in output):
        return []
    first = _first_sealed(output)
    entries = [
        entry_of(at, item, proofs.get(item["id"]) if at >= first else None, audience)
        for at, item in enumerate(output)
        if item["id"] not in seen
    ]
    if first:
        entries = [e for e in entries if e["at"] >= first or e["of"]]
    has_any = any(e["raw"] is not None or "item" in e for e in entries)
    return entries if has_any else []


def has_hidden_calls(output: Iterable[Item]) -> bool:
    """Whether tools of this server ran."""
    return any(item["type"] == _OUTPUT for item in output)


def _first_sealed(output: Sequence[Item]) -> int:
    """The index of the first item whose proof is sealed: the first of all, or the one
    after the last tool output if the outputs are too long together."""
    found = [at for at, item in enumerate(output) if item["type"] == _OUTPUT]
    if sum(len(str(output[at].get("output"))) for at in found) <= MAX_OUTPUTS:
        return 0
    return found[-1] + 1


def _is_wanted(item: Item, raw: Any) -> bool:
    if raw is None:
        return False
    return item["type"] not in _SHOWN or is_opaque(raw)


def is_opaque(raw: Any) -> bool:
    """Whether a proof has what its host wants back unchanged."""
    pending = [raw]
    while pending:
        value = pending.pop()
        if isinstance(value, dict):
            if not _OPAQUE.isdisjoint(value):
                return True
            pending += value.values()
        elif isinstance(value, list):
            pending += value
    return False


def entry_of(at: int, item: Item, raw: Any, audience: Audience) -> Entry:
    kind = item["type"]
    named: Entry = {"at": at, "type": kind, "of": "", "length": 0, "raw": raw}
    if kind == "message":
        text = text_of(item)
        return {**named, "of": _digest(text), "length": len(text)}
    if kind == _OUTPUT or (kind == "function_call" and not audience.kind(item)):
        return {**named, "item": item}
    is_hidden = kind == "custom_tool_call" and not audience.kind(item)  # xAI's own
    return {**named, "of": _name_of(item) if kind in _CALLS and not is_hidden else ""}


def _name_of(call: Item) -> str:
    """The call as the client knows it, whatever spaces its arguments have."""
    text = call.get("arguments") or call.get("input") or ""
    named = [call["call_id"], call["name"]]
    try:
        return _digest([*named, orjson.loads(text)])
    except (orjson.JSONDecodeError, orjson.JSONEncodeError):  # free, or too deep
        return _digest([*named, text])


def _digest(value: Any) -> str:
    encoded = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    return hashlib.blake2s(encoded, digest_size=12).hexdigest()


# Back


def attach(item: Item, sealed: Sealed | None) -> Item:
    """`item` with its sealed proof, if the client has not changed the item."""
    if sealed is None:
        return item
    for entry in sealed["entries"]:
        if entry["raw"] is not None and entry["of"] == _seen(item):
            data = {"issuer": sealed["issuer"], "raw": entry["raw"]}
            return {**item, "provider_data": data}
    return item


def restore(
    items: Sequence[Item],
    seals: Iterable[Sealed | None],
    thoughts: Mapping[tuple[str, int], Item] = _NO_THOUGHTS,
) -> list[Item]:
    """`items` of one message, with what `seals` have of it. `thoughts`: reasoning that
    the client has returned, by its answer and index there."""
    found = [
        (seal["answer"], entry["at"], seal["issuer"], entry)
        for seal in seals
        if seal is not None
        for entry in seal["entries"]
    ]
    if not found:
        return list(items)
    order = {answer: number for number, (answer, *_) in reversed([*enumerate(found)])}
    found.sort(key=lambda each: (order[each[0]], each[1]))
    entries = [entry for *_, entry in found]
    sealed = {entry["type"] for entry in entries if entry["raw"] is not None}
    apart = {"reasoning", PICTURE} & {"reasoning", *sealed}
    shown = _split_text([i for i in items if i["type"] not in apart], entries)
    left = dict(enumerate(shown))
    numbers: defaultdict[tuple[str, str], deque[int]] = defaultdict(deque)
    for number, item in left.items():
        numbers[item["type"], _seen(item)].append(number)
    restored: list[Item] = []
    for answer, at, issuer, entry in found:
        if not entry["of"]:
            own = thoughts.get((answer, at)) or _hidden(entry)
        elif equal := numbers[entry["type"], entry["of"]]:
            own = left.pop(equal.popleft())
        else:
            own = None  # the client has changed it, or left it out
        if own is None:
            continue
        if entry["raw"] is not None:
            own = {**own, "provider_data": {"issuer": issuer, "raw": entry["raw"]}}
        restored.append(own)
    return [*restored, *left.values()]


def _seen(item: Item) -> str:
    """What an entry of the item has as `of`."""
    if item["type"] == "message":
        return _digest(text_of(item))
    return _name_of(item) if item["type"] in _CALLS else item["id"]


def _hidden(entry: Entry) -> Item | None:
    """An item that the client has not returned."""
    if (unseen := entry.get("item")) is not None:
        return unseen
    item: Item = {"type": entry["type"], "id": new_id("rs"), "status": "completed"}
    match entry:
        case {"type": "custom_tool_call", "raw": {"call_id": _} as raw}:
            return {**raw, **item}
        case {"type": "custom_tool_call"}:
            return None
        case {"type": "reasoning"}:
            return {**item, "summary": []}
        case {"raw": None}:  # without its proof nothing is known of it
            return None
    return item


def _split_text(items: list[Item], entries: Sequence[Entry]) -> list[Item]:
    """`items` with a text that was several messages split into them again."""
    wanted = [entry for entry in entries if entry["type"] == "message"]
    messages = [item for item in items if item["type"] == "message"]
    if len(wanted) < 2 or len(messages) != 1:
        return items
    pieces = _pieces(text_of(messages[0]), wanted)
    if pieces is None:
        return items
    whole = messages[0]
    part = whole["content"][0]
    split = [
        {**whole, "id": new_id("msg"), "content": [{**part, "text": piece}]}
        for piece in pieces
    ]
    at = items.index(whole)
    return [*items[:at], *split, *items[at + 1 :]]


def _pieces(text: str, entries: Sequence[Entry]) -> list[str] | None:
    """`text` as the messages of `entries`; None if it is not theirs."""
    pieces: list[str] = []
    for entry in entries:
        for gap in ("", _GAP) if pieces else ("",):
            piece = text[len(gap) : len(gap) + entry["length"]]
            if text.startswith(gap) and _digest(piece) == entry["of"]:
                break
        else:
            return None
        pieces.append(piece)
        text = text[len(gap) + len(piece) :]
    return None if text else pieces
