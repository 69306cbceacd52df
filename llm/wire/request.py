"""One provider call in canonical form: the input of a codec's `encode`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from llm.wire.forwarding.forwarded_body import ForwardedBody
from llm.wire.items import Issuer, Item


@dataclass(frozen=True, slots=True)
class BackgroundResponse:
    """A response that its provider continues without a connection, and its issuer."""

    id: str  # the provider's
    issuer: Issuer


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Names and shapes are those of `POST /responses`; None means not requested."""

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
    #: Text with which the answer has begun already; the model continues it. Only for
    #: codecs that can express this, see `Capabilities.prefill`.
    prefill: str = ""
    #: The provider stores the response and continues it if the connection is lost. Only
    #: for codecs that can express this, see `Capabilities.background_resume`.
    in_background: bool = False
    #: The response to read again instead of requesting a new one.
    resumes: BackgroundResponse | None = None
    #: Only proofs of this issuer are sent back; other items are rebuilt without proofs.
    issuer: Issuer | None = None
    #: The client's own body, which is sent instead of the rest to a host of its API.
    #: The options here are then those of staff, and there are no items.
    forwarded: ForwardedBody | None = None
    #: Merged into the provider's body last, unchanged (staff's extras of a model).
    extra: Mapping[str, Any] = field(default_factory=dict)


def is_namespace(tool: Mapping[str, Any]) -> bool:
    """Whether it is a group of client functions, as Codex declares some."""
    return tool.get("type") == "namespace"


def members_of(tool: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The functions of a namespace, and what else a client declares in it."""
    tools = tool.get("tools")
    return (
        [each for each in tools if isinstance(each, dict)]
        if isinstance(tools, list)
        else []
    )


def single_tools(tools: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The tools, with the members of namespaces instead of these."""
    for tool in tools:
        if is_namespace(tool):
            yield from members_of(tool)
        else:
            yield tool
