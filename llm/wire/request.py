"""One provider call, in our own words: what the client asks a codec to encode."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from llm.wire.items import Issuer, Item, is_issuer


@dataclass(frozen=True, slots=True)
class BackgroundResponse:
    """A response that its provider continues without a connection, and whose it is."""

    id: str  # the provider's
    issuer: Issuer


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Names and shapes are those of `POST /responses`; None means not asked for."""

    model: str
    items: Sequence[Item]  # oldest first; proofs in `provider_data`
    instructions: str = ""
    tools: Sequence[dict[str, Any]] = ()  # Responses tools: functions are flat
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    max_output_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    reasoning: Mapping[str, Any] | None = None  # {effort, summary}
    text: Mapping[str, Any] | None = None  # {format, verbosity}
    stop: Sequence[str] = ()
    seed: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    top_logprobs: int | None = None
    metadata: Mapping[str, str] | None = None
    service_tier: str | None = None
    prompt_cache_key: str | None = None
    safety_identifier: str | None = None
    stream: bool = True
    #: Text with which the answer has begun already: the model goes on behind it. Only
    #: for codecs that can say so, which `Capabilities.prefill` tells.
    prefill: str = ""
    #: The provider keeps the response and continues it when the connection is lost.
    #: Only for codecs that can say so, where `Capabilities.background_resume` is set.
    in_background: bool = False
    #: The response to read again instead of asking for a new one.
    resumes: BackgroundResponse | None = None
    #: Only proofs of this issuer are sent back; all others are rebuilt without.
    issuer: Issuer | None = None
    #: Goes into the provider's body as it is, last (staff's per-model extras).
    extra: Mapping[str, Any] = field(default_factory=dict)

    def proof(self, item: Item) -> Any | None:
        """The raw block of `item`, if it goes to its issuer; else None."""
        data = item.get("provider_data")
        if not data or self.issuer is None:
            return None
        return data["raw"] if is_issuer(self.issuer, data["issuer"]) else None
