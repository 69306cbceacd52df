"""Adapts a request to one model, and the model's answer back to the request. No IO.

What a model cannot do natively is emulated: tools and structured output are described
in the instructions or by way of each other, and the answer is parsed accordingly
(`wire.prompted_tools`, `wire.prompted_calls`, `structured`). Options that the model
does not take are refused or left out (`options`). Every difference from the request is
listed in `degraded`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import MISSING, fields, replace
from typing import Any

from llm import forced, options, structured
from llm.capabilities import Capabilities
from llm.errors import BadResponse
from llm.forced import Demand
from llm.losses import losses
from llm.provider import Route
from llm.repairs import Repair
from llm.structured import Answer, Form, without_format
from llm.wire.codec import BackgroundCodec
from llm.wire.deltas import Delta, UsageDelta
from llm.wire.prompted_calls import CallFilter
from llm.wire.prompted_tools import offered_names, prompted
from llm.wire.request import Request

_USAGE_TOKENS = (
    "input_tokens",
    "output_tokens",
    "cached_tokens",
    "cache_write_tokens",
    "reasoning_tokens",
    "cost",
)
#: The options of a request and their default values.
_UNASKED: dict[str, Any] = {
    field.name: field.default
    for field in fields(Request)
    if field.default is not MISSING
} | {"extra": {}}


NOTHING = Request(model="", items=())


def addressed(request: Request, route: Route, meant_for: Route) -> Request:
    """Copy `request`, which was built for the model of `primary`, for the model of
    `route`.

    The default options of the first model are replaced by those of the other one;
    options that the caller set stay. Hosted tools of the first model stay too:
    `options.fit` leaves out and reports the ones that the other model lacks.
    """
    issuer = route.endpoint.issuer(route.model)
    if route is meant_for and (request.model, request.issuer) == (route.model, issuer):
        return request  # a copy costs more than this comparison
    changed: dict[str, Any] = {"model": route.model, "issuer": issuer}
    if route is not meant_for:
        changed |= _defaults(request, route, meant_for)
        if more := [each for each in route.hosted_tools if each not in request.tools]:
            changed["tools"] = [*request.tools, *more]
    return replace(request, **changed)


def _defaults(request: Request, route: Route, meant_for: Route) -> dict[str, Any]:
    ours, theirs = _wishes(meant_for), _wishes(route)
    changed: dict[str, Any] = {}
    for name in ours.keys() | theirs.keys():
        asked = getattr(request, name)
        if asked is None or asked in (_UNASKED[name], ours.get(name)):
            changed[name] = theirs.get(name, _UNASKED[name])
    return changed


def _wishes(route: Route) -> dict[str, Any]:
    known = {
        name: value
        for name, value in route.defaults.items()
        if name in _UNASKED and value is not None
    }
    if route.max_output_tokens is not None:
        known.setdefault("max_output_tokens", route.max_output_tokens)
    return known


class Adaptation:
    """One provider call: the adapted request and the conversion of its deltas.

    Raises BadRequest for what this model cannot be asked. Call `close` when the stream
    is over, after an error too.
    """

    __slots__ = (
        "_answer",
        "_asked",
        "_calls",
        "_demand",
        "_form",
        "_held",
        "_ignore_invalid",
        "_lost",
        "_route",
        "degraded",
        "request",
        "spent",
    )

    def __init__(
        self,
        request: Request,
        route: Route,
        *,
        form: Form | None = None,
        held: bool = False,
        ignore_invalid: bool = False,
        lost: Sequence[str] = (),
    ) -> None:
        self.degraded: list[str] = [*lost]
        self._lost = lost  # names of what the provider has already refused
        self._route = route
        self._asked = request
        self._ignore_invalid = ignore_invalid
        self._calls: CallFilter | None = None
        self._answer: Answer | None = None
        self._demand: Demand | None = None
        self._form = None if structured.forces_a_call(request) else form
        self._held = held
        self.spent: UsageDelta | None = None  # usage of an answer that was discarded
        can = _capabilities(route)
        request = self._with_form(request, can)
        request = self._with_tools(request, can)
        request = self._with_prefill(request, can)
        request = self._with_background(request, can)
        fitted = options.fit(
            request,
            can,
            model_name=route.name,
            ignore_invalid=ignore_invalid,
            codec=route.endpoint.codec,
        )
        self.request = fitted.request
        self.degraded += fitted.dropped
        approximated = options.degraded(route.endpoint.codec, self.request)
        self.degraded += approximated
        self.degraded += losses(self.request, route.endpoint.codec)
        if self._answer and "text.format" in approximated:
            # emulated in the instructions, so the JSON may come wrapped in text
            self._held = True
            self._answer.hold()
        if self._answer is None and structured.forces_a_call(self._asked):
            self._demand_a_call()

    # The request

    def _with_form(self, request: Request, can: Capabilities) -> Request:
        form, tool = self._form, ""
        if form is None:  # any text is allowed, or a tool must be called first
            return request if _takes_form(request, can) else without_format(request)
        if not _takes_form(request, can):
            self._held = True
            if _can_be_forced(request, can) and structured.can_be_input(form.schema):
                request, tool = structured.by_tool(request, form)
                self.degraded.append("text.format (emulated by a tool)")
            else:
                json_mode = can.json_mode is True and not request.tools
                request = structured.by_words(request, form, json_mode=json_mode)
                self.degraded.append("text.format (emulated by words)")
        self._answer = Answer(form, tool=tool, held=self._held)
        return request

    def _with_tools(self, request: Request, can: Capabilities) -> Request:
        if can.tools is not False:
            return request
        if request.tools:
            self._calls = CallFilter(offered_names(request))
            self.degraded.append("tools (emulated by words)")
        return prompted(request)

    def _with_prefill(self, request: Request, can: Capabilities) -> Request:
        """Remove the prefill where the model would ignore or refuse it: the answer is
        then requested from its start."""
        if not request.prefill:
            return request
        takes = can.prefill is True and self._route.endpoint.takes_prefill
        effort = (request.reasoning or {}).get("effort")
        form = (self._asked.text or {}).get("format") or {}
        has_form = self._answer is not None or form.get("type", "text") != "text"
        is_plain = not (self._calls or has_form or can.reasons(effort))
        is_last = not request.items or request.items[-1].get("role") != "assistant"
        if takes and is_plain and is_last:
            return request
        return replace(request, prefill="")

    def _with_background(self, request: Request, can: Capabilities) -> Request:
        """Store responses at the provider only if the staff enabled it for this model.
        """
        takes = can.background_resume is True and request.stream
        if takes and isinstance(self._route.endpoint.codec, BackgroundCodec):
            resumes = request.resumes
            if resumes is None or self._route.has_made(resumes):
                return request
            return replace(request, resumes=None)
        if request.in_background or request.resumes:
            return replace(request, in_background=False, resumes=None)
        return request

    def _demand_a_call(self) -> None:
        # tools and the demand are both written in the instructions
        in_words = self._calls is not None
        if self.request.tools and "tool_choice" in self.degraded:
            in_words = True
            self.request = forced.demanded(self.request, self._asked.tool_choice)
        if in_words or self.request.tools:
            self._demand = Demand(holds_thoughts=in_words)

    def settle(self) -> None:
        """Release the request: output was sent, so there will be no other attempt."""
        self.request = self._asked = NOTHING

    # Its answer

    @property
    def is_plain(self) -> bool:
        """Whether `feed` returns its input unchanged."""
        return not (self._calls or self._answer or self._demand)

    def feed(self, deltas: list[Delta]) -> list[Delta]:
        if self._calls:
            deltas = self._calls.feed(deltas)
        if self._answer:
            deltas = self._answer.feed(deltas)
        if self._demand:
            deltas = self._demand.feed(deltas)
        return deltas

    def close(self) -> list[Delta]:
        told: list[Delta] = self._calls.close() if self._calls else []
        if self._answer:
            told = [*self._answer.feed(told), *self._answer.close()]
        if self._demand:
            told = [*self._demand.feed(told), *self._demand.close()]
        return told

    @property
    def problem(self) -> BadResponse | None:
        """Why the closed answer is invalid; None for a valid one."""
        if self._demand and self._demand.is_unheeded:
            return BadResponse("The model answered without the call demanded of it.")
        if self._answer is None or not self._answer.mistakes:
            return None
        return BadResponse(
            "The model's answer does not fit the JSON Schema that was asked for.",
            detail=" ".join(self._answer.mistakes),
        )

    def corrected(self, spent: UsageDelta | None) -> Adaptation | None:
        """Build a second request for an invalid answer that was not sent yet.

        None if there is nothing to correct, or after the first correction.
        """
        answer, demand = self._answer, self._demand
        if self.spent:
            return None
        if demand and demand.is_unheeded:
            asked = forced.demanded_again(self._asked, demand.text)
        elif answer and answer.mistakes and self._held:
            asked = structured.corrected(self._asked, answer.text, answer.mistakes)
        else:
            return None
        return self._again(asked, spent=spent or UsageDelta())

    def anew(self) -> Adaptation:
        """Build the same request for another call."""
        return self._again(self._asked)

    def moved(self, route: Route) -> Adaptation:
        """Build the same request for a call with another key."""
        asked = self._asked
        if asked.issuer is not None:  # otherwise the proofs were removed
            asked = replace(asked, issuer=route.endpoint.issuer(route.model))
        return self._again(asked, route)

    def repaired(self, repair: Repair, route: Route) -> Adaptation:
        """Build the repaired request.

        `route` is the same route, but may have another codec.
        """
        return self._again(
            repair.change(self._asked), route, lost=[*self._lost, repair.degraded]
        )

    def _again(
        self,
        request: Request,
        route: Route | None = None,
        *,
        lost: Sequence[str] | None = None,
        spent: UsageDelta | None = None,
    ) -> Adaptation:
        again = Adaptation(
            request,
            route or self._route,
            form=self._form,
            held=self._held,
            ignore_invalid=self._ignore_invalid,
            lost=self._lost if lost is None else lost,
        )
        again.spent = spent or self.spent
        if again.spent and again._demand:
            again._demand.release()
        return again


def _capabilities(route: Route) -> Capabilities:
    """The capabilities of the model that its wire format can express."""
    can = Capabilities.read(route.capabilities)
    if getattr(route.endpoint.codec, "files", True):
        return can
    return replace(can, files=False)


def _takes_form(request: Request, can: Capabilities) -> bool:
    match (request.text or {}).get("format"):
        case {"type": "json_schema"}:
            return can.json_schema is not False
        case {"type": "json_object"}:
            return can.json_mode is not False
    return True


def _can_be_forced(request: Request, can: Capabilities) -> bool:
    if can.tools is False or can.forced_tools is False:
        return False
    effort = (request.reasoning or {}).get("effort")
    return can.forced_while_reasoning is not False or not can.reasons(effort)


def added(usage: UsageDelta, more: UsageDelta) -> UsageDelta:
    """Add two usages; a count that neither of them has stays None."""
    total = UsageDelta(raw=more.raw)
    for name in _USAGE_TOKENS:
        known = [
            value
            for value in (getattr(usage, name), getattr(more, name))
            if value is not None
        ]
        if known:
            setattr(total, name, sum(known))
    return total


def heard(usage: UsageDelta | None, delta: UsageDelta) -> UsageDelta:
    """Update `usage` with the counts of `delta` that are not None."""
    known = {
        name: value
        for name in UsageDelta.__slots__
        if (value := getattr(delta, name)) is not None
    }
    return replace(usage or UsageDelta(), **known)
