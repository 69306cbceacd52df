"""Adapts a request to one model, and the model's answer back to the request. No IO.

What a model cannot do natively is emulated: tools and structured output are described
in the instructions or by way of each other, and the answer is parsed accordingly
(`wire.prompted_tools`, `wire.prompted_calls`, `structured`). Options that the model
does not take are refused or left out (`options`). Every difference from the request is
listed in `degraded`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace

from llm import options
from llm.adaptation import (
    forced_calls,
    free_text,
    namespaces,
    strict_output,
    structured,
)
from llm.adaptation.dropped_input import find_losses
from llm.adaptation.forced_calls import ForcedCall
from llm.adaptation.request_repairs import Repair
from llm.adaptation.structured import AnswerValidator, OutputFormat, without_format
from llm.adaptation.tool_names import UNSENT_NAME, with_wire_names
from llm.capabilities import Capabilities
from llm.errors import BadResponse
from llm.provider import Route
from llm.wire.codec import BackgroundCodec, RenamingCodec
from llm.wire.deltas import Delta, ItemDelta, ToolCallDelta, UsageDelta
from llm.wire.item_prefix_cache import SplitItems
from llm.wire.prompted_calls import CallFilter
from llm.wire.prompted_tools import available_tool_names, with_prompted_tools
from llm.wire.request import Request

_USAGE_TOKENS = (
    "input_tokens",
    "output_tokens",
    "cached_tokens",
    "cache_write_tokens",
    "cache_write_1h_tokens",
    "reasoning_tokens",
    "web_searches",
    "file_searches",
    "cost",
)
_TEXT_PARTS = frozenset({"input_text", "output_text"})
EMPTY_REQUEST = Request(model="", items=())


@dataclass(slots=True, eq=False, repr=False)
class Adaptation:
    """One provider call: the adapted request and the conversion of its deltas.

    Raises BadRequest for what this model cannot be asked. Call `close` when the stream
    is over, after an error too.
    """

    request: Request  # the caller's; once adapted, what the model is sent
    route: Route
    _: KW_ONLY
    output_format: OutputFormat | None = None  # instead of the request's `text.format`
    buffered: bool = False  # the answer is yielded once it is complete and checked
    ignore_invalid: bool = False  # leave out all options that the model does not accept
    droppable: Collection[str] = ()  # leave out these ones; others are refused
    refused: Sequence[str] = ()  # names of what the provider has already refused
    strict: bool = False  # ask the host to enforce the answer's format

    degraded: list[str] = field(init=False)  # differences from the caller's request
    has_only_texts: bool = field(init=False)  # and nothing to fetch
    spent: UsageDelta | None = field(init=False, default=None)  # of a discarded answer
    _original: Request = field(init=False)
    _calls: CallFilter | None = field(init=False, default=None)
    _validator: AnswerValidator | None = field(init=False, default=None)
    _forced_call: ForcedCall | None = field(init=False, default=None)
    #: Names that the request declares, by those that the model calls.
    _tool_names: Mapping[str, str] = field(init=False, default_factory=dict)
    #: Functions in namespaces, by the names that they have without.
    _members: Mapping[str, namespaces.Member] = field(init=False, default_factory=dict)
    _free_text: free_text.CallRestorer | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        request, route = self.request, self.route
        self._original = request
        self.degraded = [*self.refused]
        if route.replaces:
            self.degraded.append(f"model ({route.replaces} → {route.name}, retired)")
        forces_call = bool(request.tool_choice) and structured.forces_a_call(request)
        if forces_call:
            self.output_format = None
        if request.forwarded is not None:  # the host itself reads and checks it
            self.has_only_texts = True
            return
        can, codec = route.capabilities, route.endpoint.codec
        if can.tools is False or not codec.name.startswith("openai_responses"):
            request, self._members = namespaces.flatten(request)
            self.request = request
        if can.tools is False or not codec.name.startswith("openai"):
            request = self.request = self._with_functions(request, can)
        wants_format = bool(request.text) or self.output_format is not None
        if wants_format or can.tools is False or request.prefill:
            request = self._emulate(request, can, wants_format=wants_format)
        if request.in_background or request.resumes:
            request = self._with_background(request, can)
        fitted = options.fit(
            request,
            can,
            model_name=route.name,
            ignore_invalid=self.ignore_invalid,
            droppable=self.droppable,
            codec=codec,
        )
        self.request = fitted.request
        self.degraded += fitted.dropped
        if self.request.tools and isinstance(codec, RenamingCodec):
            self._tool_names = codec.renamed_tools(self.request)
        approximated = options.find_approximations(codec, self.request)
        self.degraded += approximated
        self.has_only_texts = _has_only_texts(self.request)
        if not self.has_only_texts:
            self.degraded += find_losses(self.request, codec)
        if self._validator:
            if "text.format" in approximated:
                # emulated in the instructions, so the JSON may come wrapped in text
                self.buffered = True
                self._validator.buffer()
        elif forces_call:
            self._force_call()
        names = (str(tool.get("name", "")) for tool in self.request.tools)
        may_be_unsent = any(map(UNSENT_NAME.search, names)) or not self.has_only_texts
        if codec.name.startswith("openai_") and may_be_unsent:
            self.request, self._tool_names = with_wire_names(self.request)

    # The request

    def _emulate(
        self, request: Request, can: Capabilities, *, wants_format: bool
    ) -> Request:
        if wants_format:
            request = self._with_output_format(request, can)
        if can.tools is False:
            request = self._with_tools_in_words(request)
        return self._with_prefill(request) if request.prefill else request

    def _with_output_format(self, request: Request, can: Capabilities) -> Request:
        output_format, tool = self.output_format, ""
        if output_format is None:  # any text is allowed, or a tool must be called first
            return (
                request if _supports_format(request, can) else without_format(request)
            )
        if not _supports_format(request, can):
            self.buffered = True
            if _can_force_call(request, can) and structured.can_be_tool_input(
                output_format.schema
            ):
                request, tool = structured.add_answer_tool(request, output_format)
                self.degraded.append("text.format (emulated by a tool)")
            else:
                json_mode = can.json_mode is True and not request.tools
                request = structured.add_format_instructions(
                    request, output_format, json_mode=json_mode
                )
                self.degraded.append("text.format (emulated by words)")
        elif self.strict and "strict" not in self.refused:
            strict_format = strict_output.make_strict(
                request, output_format, self.route.endpoint.codec
            )
            request, output_format = strict_format.request, strict_format.output_format
            self.degraded += strict_format.degraded
            self.buffered |= output_format.has_added_nulls
        self._validator = AnswerValidator(
            output_format, tool=tool, buffered=self.buffered
        )
        return request

    def _with_functions(self, request: Request, can: Capabilities) -> Request:
        """For tools that take free text."""
        if can.tools is False:
            items = free_text.with_function_items(request.items)
            request = replace(request, items=items)
        request, names = free_text.with_functions(request)
        if names:
            self._free_text = free_text.CallRestorer(names)
            self.degraded.append("tools")
        return request

    def _with_tools_in_words(self, request: Request) -> Request:
        if request.tools:
            self._calls = CallFilter(available_tool_names(request))
            self.degraded.append("tools (emulated by words)")
        return with_prompted_tools(request)

    def _with_prefill(self, request: Request) -> Request:
        """Remove the prefill where the model would ignore or refuse it: the answer is
        then requested from its start."""
        effort = (request.reasoning or {}).get("effort")
        form = (self._original.text or {}).get("format") or {}
        has_form = self._validator is not None or form.get("type", "text") != "text"
        is_plain = not (self._calls or has_form)
        is_last = not request.items or request.items[-1].get("role") != "assistant"
        if self.route.takes_prefill(effort) and is_plain and is_last:
            return request
        return replace(request, prefill="")

    def _with_background(self, request: Request, can: Capabilities) -> Request:
        """Store responses at the provider only if staff enabled it for the model."""
        takes = can.background_resume is True and request.stream
        if takes and isinstance(self.route.endpoint.codec, BackgroundCodec):
            resumes = request.resumes
            if resumes is None or self.route.owns_response(resumes):
                return request
            return replace(request, resumes=None)
        return replace(request, in_background=False, resumes=None)

    def _force_call(self) -> None:
        # tools and the demand are both written in the instructions
        in_words = self._calls is not None
        if self.request.tools and "tool_choice" in self.degraded:
            in_words = True
            self.request = forced_calls.add_demand(
                self.request, self._original.tool_choice
            )
        if in_words or self.request.tools:
            self._forced_call = ForcedCall(buffers_reasoning=in_words)

    def release_request(self) -> None:
        """Release the request: output was sent, so there will be no other attempt."""
        self.request = self._original = EMPTY_REQUEST

    # Its answer

    @property
    def is_plain(self) -> bool:
        """Whether `feed` returns its input unchanged."""
        return not (
            self._calls
            or self._validator
            or self._forced_call
            or self._tool_names
            or self._members
            or self._free_text
        )

    def feed(self, deltas: list[Delta]) -> list[Delta]:
        if self._tool_names:
            deltas = [_restore_name(delta, self._tool_names) for delta in deltas]
        if self._calls:
            deltas = self._calls.feed(deltas)
        if self._validator:
            deltas = self._validator.feed(deltas)
        if self._forced_call:
            deltas = self._forced_call.feed(deltas)
        if self._free_text:
            deltas = self._free_text.feed(deltas)
        return self._restore_namespaces(deltas)

    def close(self) -> list[Delta]:
        deltas: list[Delta] = self._calls.close() if self._calls else []
        if self._validator:
            deltas = [*self._validator.feed(deltas), *self._validator.close()]
        if self._forced_call:
            deltas = [*self._forced_call.feed(deltas), *self._forced_call.close()]
        if self._free_text:
            deltas = [*self._free_text.feed(deltas), *self._free_text.close()]
        return self._restore_namespaces(deltas)

    def _restore_namespaces(self, deltas: list[Delta]) -> list[Delta]:
        if not self._members:
            return deltas
        return [namespaces.restore(delta, self._members) for delta in deltas]

    @property
    def problem(self) -> BadResponse | None:
        """Why the closed answer is invalid; None for a valid one."""
        if self._forced_call and self._forced_call.is_ignored:
            return BadResponse("The model did not make the required tool call.")
        if self._validator is None or not self._validator.errors:
            return None
        return BadResponse(
            "The model's answer does not match the requested JSON Schema.",
            detail=" ".join(self._validator.errors),
        )

    def build_correction(self, spent: UsageDelta | None) -> Adaptation | None:
        """Build a second request for an invalid answer that was not sent yet.

        None if there is nothing to correct.
        """
        validator, forced_call = self._validator, self._forced_call
        if forced_call and forced_call.is_ignored:
            request = forced_calls.repeat_demand(self._original, forced_call.text)
        elif validator and validator.errors and self.buffered:
            request = structured.request_correction(
                self._original, validator.text, validator.errors
            )
        else:
            return None
        return self._rebuild(request, spent=spent or UsageDelta())

    def with_route(self, route: Route) -> Adaptation:
        """Build the same request for a call with another key."""
        request = self._original
        if request.issuer is not None:  # otherwise the proofs were removed
            request = replace(request, issuer=route.issuer)
        return self._rebuild(request, route)

    def with_repair(self, repair: Repair, route: Route) -> Adaptation:
        """Build the repaired request.

        `route` is the same route, but may have another codec.
        """
        return self._rebuild(
            repair.change(self._original),
            route,
            refused=[*self.refused, repair.degraded],
        )

    def _rebuild(
        self,
        request: Request,
        route: Route | None = None,
        *,
        refused: Sequence[str] | None = None,
        spent: UsageDelta | None = None,
    ) -> Adaptation:
        adaptation = replace(
            self,
            request=request,
            route=route or self.route,
            refused=self.refused if refused is None else refused,
        )
        adaptation.spent = spent or self.spent
        if adaptation.spent and adaptation._forced_call:
            adaptation._forced_call.pass_through()
        return adaptation


def _has_only_texts(request: Request) -> bool:
    """Whether all items are messages of text that no codec changes: of a user, of this
    model itself, or without sources and phases. Nothing of it is lost or fetched."""
    if isinstance(request.items, SplitItems):
        return False  # long, and what is found in it is cached
    for item in request.items:
        proof = item.get("provider_data") or {}
        is_own = proof.get("issuer", "") == request.issuer
        if item.get("type", "message") != "message":
            return False
        if item.get("phase") and not is_own:
            return False
        content = item.get("content")
        for part in content if isinstance(content, list) else ():
            if not isinstance(part, dict) or part.get("type") not in _TEXT_PARTS:
                return False
            if part.get("annotations") and not is_own:
                return False
    return True


def _restore_name(delta: Delta, names: Mapping[str, str]) -> Delta:
    """A call with the name that the request declares."""
    if isinstance(delta, ToolCallDelta) and delta.name in names:
        return replace(delta, name=names[delta.name])
    if isinstance(delta, ItemDelta) and delta.item["type"] == "custom_tool_call":
        name = delta.item["name"]
        return replace(delta, item={**delta.item, "name": names.get(name, name)})
    return delta


def _supports_format(request: Request, can: Capabilities) -> bool:
    match (request.text or {}).get("format"):
        case {"type": "json_schema"}:
            return can.json_schema is not False
        case {"type": "json_object"}:
            return can.json_mode is not False
    return True


def _can_force_call(request: Request, can: Capabilities) -> bool:
    if can.tools is False or can.forced_tools is False:
        return False
    effort = (request.reasoning or {}).get("effort")
    return can.forced_while_reasoning is not False or not can.reasons(effort)


def add_usage(usage: UsageDelta, more: UsageDelta) -> UsageDelta:
    """Add two usages; a count that neither of them has stays None."""
    total = UsageDelta(
        raw=more.raw,
        apart=[*(usage.apart or ()), *(more.apart or ())] or None,
        has_other_prices=usage.has_other_prices or more.has_other_prices,
        tier=more.tier or usage.tier,
    )
    if usage.tier != more.tier and None not in (usage.input_tokens, more.input_tokens):
        total.has_other_prices = True  # the sum has no price of one tier
    for name in _USAGE_TOKENS:
        known = [
            value
            for value in (getattr(usage, name), getattr(more, name))
            if value is not None
        ]
        if known:
            setattr(total, name, sum(known))
    return total


def merge_usage(usage: UsageDelta | None, delta: UsageDelta) -> UsageDelta:
    """Update `usage` with the counts of `delta` that are not None."""
    known = {
        name: value
        for name in UsageDelta.__slots__
        if (value := getattr(delta, name)) is not None
    }
    return replace(usage or UsageDelta(), **known)
