"""Proofs of a host in the reasoning of a response, for clients that keep the history.

`include: ["reasoning.encrypted_content"]` requests it. The provider's proof is sealed
into the field that OpenAI uses. The proofs of other items (Gemini signs its calls), and
the calls of this server's own tools, which the client does not see, are in one more
reasoning item at the end: clients of this API return reasoning, but few return fields
that they do not know. An answer with calls has this item even if the client did not
request it, since hosts refuse the outputs of calls without proofs. A proof that the
client sends back goes only to the model that made it, whatever the client's API.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, Protocol

from conversations.gateway.sealed_values import seal, unseal
from llm.wire.facades.client_visibility import Audience
from llm.wire.facades.proof_entries import (
    Entry,
    Sealed,
    Sealing,
    has_hidden_calls,
    is_opaque,
    restore,
)
from llm.wire.facades.responses_writer import ResponsesWriter
from llm.wire.forwarding.sealed_text import PREFIX, is_sealed
from llm.wire.items import Event, Issuer, Item, new_id
from llm.wire.response_builder import TERMINAL, ResponseBuilder

_FIELD = "encrypted_content"
_LOST = f"input.{_FIELD}"  # the name in `x-parley-degraded`
_CALLS = frozenset({"custom_tool_call", "function_call"})
_EVERYTHING = Audience()
_NOTHING: Sealed = {
    "answer": "",
    "issuer": {"provider": "", "model": "", "route": ""},
    "entries": [],
}


class ProvenAnswer(Protocol):
    """A response with the proofs of its items and the issuer of the proofs."""

    @property
    def builder(self) -> ResponseBuilder: ...

    @property
    def issuer(self) -> Issuer: ...


def wants_encrypted_reasoning(body: Mapping[str, Any]) -> bool:
    return "reasoning.encrypted_content" in (body.get("include") or ())


# Back


def restore_proofs(
    items: Sequence[Item], raw_input: Any, user_id: int, lost: list[str]
) -> list[Item]:
    """`items`, which were parsed from `raw_input`, with sealed proofs restored. Adds
    the field's name to `lost` if it has others, which no host gets."""
    texts = [item.get(_FIELD) for item in _reasoning(raw_input)]
    indexes = [n for n, item in enumerate(items) if item.get("type") == "reasoning"]
    restored = list(items)
    if len(texts) != len(indexes):
        if any(texts):
            lost.append(_LOST)
        return restored  # the proofs cannot be matched with the items
    # By the id of the reasoning item: its seal, and its answer and position there.
    seals: dict[str, Sealed] = {}
    positions: dict[str, tuple[str, int]] = {}
    for index, text in zip(indexes, texts, strict=True):
        item = restored[index]
        if isinstance(text, str) and is_sealed(text):
            answer = unseal("answer_proofs", user_id, text.removeprefix(PREFIX))
            seals[item["id"]] = answer or _NOTHING
            if answer is None:
                lost.append(_LOST)
        elif (proof := unseal("proof", user_id, text)) is not None:
            data = {name: proof[name] for name in ("issuer", "raw")}
            restored[index] = {**item, "provider_data": data}
            if "answer" in proof:
                positions[item["id"]] = proof["answer"], proof["at"]
        elif text and "provider_data" not in item:  # of a host of another API
            lost.append(_LOST)
    return _restore_answers(restored, seals, positions) if seals else restored


def _restore_answers(
    items: Sequence[Item],
    seals: Mapping[str, Sealed],
    positions: Mapping[str, tuple[str, int]],
) -> list[Item]:
    """`items` with what `seals` have of them. Both mappings are by the id of the
    reasoning item that had the sealed text."""
    whole: list[Item] = []
    for from_model, grouped in groupby(items, _is_from_model):
        run = list(grouped)
        found = [seals[i["id"]] for i in run if i.get("id", "") in seals]
        if not (from_model and found):
            whole += run
            continue
        thoughts = {positions[i["id"]]: i for i in run if i.get("id", "") in positions}
        own = [_entry_of(position, item) for position, item in thoughts.items()]
        rest = [item for item in run if item.get("id", "") not in seals]
        others = _match_others(rest, found)
        matched = set(map(id, others.values()))
        rest = [item for item in rest if id(item) not in matched]
        whole += restore(rest, [*own, *found], {**thoughts, **others})
    return whole


def _match_others(
    run: Sequence[Item], seals: Iterable[Sealed]
) -> dict[tuple[str, int], Item]:
    """The items of `run` for the entries that have only a type (calls of a host's own
    tools). By answer and position in it."""
    matched: dict[tuple[str, int], Item] = {}
    named = {"message", "reasoning", "function_call"}
    left: defaultdict[str, deque[Item]] = defaultdict(deque)
    for item in run:
        if (kind := item["type"]) not in named:
            left[kind].append(item)
    for sealed in seals:
        for entry in sealed["entries"]:
            if entry["of"] or "item" in entry:
                continue
            if equal := left.get(entry["type"]):
                matched[sealed["answer"], entry["at"]] = equal.popleft()
    return matched


def _entry_of(position: tuple[str, int], thought: Item) -> Sealed:
    answer, at = position
    proof = thought["provider_data"]
    entry: Entry = {
        "at": at,
        "type": "reasoning",
        "of": "",
        "length": 0,
        "raw": proof["raw"],
    }
    return {"answer": answer, "issuer": proof["issuer"], "entries": [entry]}


def _is_from_model(item: Item) -> bool:
    kind = str(item.get("type", "message"))
    if kind == "message":
        return item.get("role") == "assistant"
    return not kind.endswith(("_output", "_response"))


def _reasoning(raw_input: Any) -> Iterable[Mapping[str, Any]]:
    for item in raw_input if isinstance(raw_input, list) else ():
        if isinstance(item, dict) and item.get("type") == "reasoning":
            yield item


# Out


class EncryptedReasoningWriter(ResponsesWriter):
    """Adds the sealed proof to each reasoning item that has one, if `wants_all`, and at
    the end an item with the other proofs, if the model's host wants them back."""

    def __init__(
        self,
        answer: ProvenAnswer,
        user_id: int,
        *,
        sealing: Sealing | None = None,
        audience: Audience = _EVERYTHING,
        wants_all: bool = True,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self._answer = answer
        self._user_id = user_id
        self._sealing = sealing
        self._audience = audience
        self._wants_all = wants_all
        self._seals: dict[str, str] = {}  # by item id
        self._last: Item | None = None

    def feed(self, events: Iterable[Event]) -> list[Event]:
        return super().feed(e for event in events for e in self._add_proof(event))

    def whole(self, response: Mapping[str, Any]) -> dict[str, Any]:
        output = response["output"]
        proven = [self._item(at, item) for at, item in enumerate(output)]
        if (last := self._last_item(response)) is not None:
            proven.append(last)
        return super().whole({**response, "output": proven})

    def _add_proof(self, event: Event) -> Iterable[Event]:
        kind = event["type"]
        if kind == "response.output_item.done":
            item = self._item(event["output_index"], event["item"])
            event = {**event, "item": item}
        elif kind in TERMINAL and (last := self._last_item(event["response"])):
            at = len(event["response"]["output"])
            position = {"sequence_number": event["sequence_number"], "output_index": at}
            begun = {**last, "status": "in_progress"}
            yield {"type": "response.output_item.added", **position, "item": begun}
            yield {"type": "response.output_item.done", **position, "item": last}
        yield event

    def _item(self, at: int, item: Item) -> Item:
        raw = self._answer.builder.proofs.get(item["id"])
        if item["type"] != "reasoning" or raw is None or not self._wants_all:
            return item
        if item["id"] not in self._seals:
            position = {"answer": self._answer.builder.response([])["id"], "at": at}
            proof = {"issuer": self._answer.issuer, "raw": raw, **position}
            self._seals[item["id"]] = seal("proof", self._user_id, proof)
        return {**item, _FIELD: self._seals[item["id"]]}

    def _last_item(self, response: Mapping[str, Any]) -> Item | None:
        """What the host wants back beside the reasoning that has its proof."""
        output = response["output"]
        if self._sealing is None or response["status"] == "failed":
            return None
        if self._last is None and self._has_more(output):
            text = self._sealing.seal(output, self._audience, skipped=self._seals)
            if text:
                item: Item = {"type": "reasoning", "id": new_id("rs"), "summary": []}
                self._last = {**item, _FIELD: text, "status": "completed"}
        return self._last

    def _has_more(self, output: Sequence[Item]) -> bool:
        """Whether the host might refuse the answer as the client would return it."""
        if has_hidden_calls(output) or (self._sealing and self._sealing.at_end):
            return True
        calls = [item for item in output if item["type"] in _CALLS]
        proofs = self._answer.builder.proofs
        if any(is_opaque(proofs.get(call["id"])) for call in calls):
            return True
        thoughts = (item for item in output if item["type"] == "reasoning")
        is_sealed = self._wants_all or not calls
        return not is_sealed and any(thought["id"] in proofs for thought in thoughts)
