"""Seals the proofs of an answer for its client, and opens them when it returns them.

A seal is bound to the user. Its proofs go only to the host and model that made them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import orjson

from conversations.gateway.encrypted_reasoning import ProvenAnswer
from conversations.gateway.sealed_values import seal, unseal
from llm.wire.facades.client_visibility import Audience
from llm.wire.facades.proof_entries import (
    Entry,
    Sealed,
    entries_of,
    entry_of,
)
from llm.wire.forwarding.sealed_text import PREFIX
from llm.wire.items import Item

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class AnswerSealing:
    """Seals the proofs of one answer (`proof_entries.Sealing`)."""

    answer: ProvenAnswer
    user_id: int
    at_end: bool = False  # seals nothing of an item before the end

    def seal(
        self,
        output: Sequence[Item],
        audience: Audience,
        *,
        skipped: Iterable[str] = (),
    ) -> str:
        proofs = self.answer.builder.proofs
        return self._seal(entries_of(output, proofs, audience, skipped=skipped))

    def seal_item(self, at: int, item: Item, audience: Audience) -> str:
        raw = self.answer.builder.proofs.get(item["id"])
        if raw is None or self.at_end:
            return ""
        return self._seal([entry_of(at, item, raw, audience)])

    def seal_signature(self, at: int, call: Item, audience: Audience) -> str:
        raw = self.answer.builder.proofs.get(call["id"])
        parts = raw if isinstance(raw, list) else ()
        is_signed = any(part.get("thoughtSignature") for part in parts)
        return self.seal_item(at, call, audience) if is_signed else ""

    def _seal(self, entries: list[Entry]) -> str:
        if not entries:
            return ""
        value: Sealed = {
            "answer": self.answer.builder.response([])["id"],
            "issuer": self.answer.issuer,
            "entries": entries,
        }
        try:
            return PREFIX + seal("answer_proofs", self.user_id, value)
        except orjson.JSONEncodeError:  # nested too deeply; the answer is whole
            logger.warning(
                "the proofs of response %s cannot be sealed", value["answer"]
            )
            return ""


def open_seal(user_id: int, lost: list[str], field: str, text: str) -> Sealed | None:
    """What is sealed in `text`; if that cannot be read, `field` is added to `lost`.

    What the model that is called will not get, as another one has made it, is found
    later (`llm.adaptation`).
    """
    sealed: Sealed | None = unseal("answer_proofs", user_id, text.removeprefix(PREFIX))
    if sealed is None:
        lost.append(field)
    return sealed
