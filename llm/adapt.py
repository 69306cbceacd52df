"""A request as one model takes it, and its answer as if it had taken all of it. Pure.

What a model cannot do by itself is done for it: tools and structured output are told in
words or by way of each other, and what it says is read back (`wire.prompted_tools`,
`wire.prompted_calls`, `structured`). Options that it does not take are refused or left
out (`options`). What was asked differently stands in `degraded`, so that nothing is
lost in silence.
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
#: The options of a request, and what stands there when nobody asked.
_UNASKED: dict[str, Any] = {
    field.name: field.default
    for field in fields(Request)
    if field.default is not MISSING
} | {"extra": {}}


NOTHING = Request(model="", items=())


def addressed(request: Request, route: Route, meant_for: Route) -> Request:
    """`request`, made for one model, made out to another.

    What the staff ask of every request to the first model is not asked of the other,
    which has wishes of its own; what the caller asked for stays. So do the first one's
    hosted tools, of which `options.fit` leaves out and reports what this one lacks.
    """
    issuer = route.endpoint.issuer(route.model)
    if route is meant_for and (request.model, request.issuer) == (route.model, issuer):
        return request  # to copy it costs more than to look
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
    """One provider call: the request to send, and what its deltas come to.

    Raises BadRequest for what this model cannot be asked. `close` once the stream is
    over, well or not.
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
        self._lost = lost  # what the provider has refused already
        self._route = route
        self._asked = request
        self._ignore_invalid = ignore_invalid
        self._calls: CallFilter | None = None
        self._answer: Answer | None = None
        self._demand: Demand | None = None
        self._form = None if structured.forces_a_call(request) else form
        self._held = held
        self.spent: UsageDelta | None = None  # on an answer thrown away
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
            self._held = True  # told in words after all, so it may come wrapped
            self._answer.hold()
        if self._answer is None and structured.forces_a_call(self._asked):
            self._demand_a_call()

    # The request

    def _with_form(self, request: Request, can: Capabilities) -> Request:
        form, tool = self._form, ""
        if form is None:  # any text will do, or a tool must be called first
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
        """Without it where the model would begin anew or refuse: the answer is asked
        for from its start."""
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
        """The provider keeps nothing unless staff switched it on for this model."""
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
        in_words = self._calls is not None  # offered so, and demanded so
        if self.request.tools and "tool_choice" in self.degraded:
            in_words = True
            self.request = forced.demanded(self.request, self._asked.tool_choice)
        if in_words or self.request.tools:
            self._demand = Demand(holds_thoughts=in_words)

    def settle(self) -> None:
        """Something was told, so nothing is asked again: let go of what was asked."""
        self.request = self._asked = NOTHING

    # Its answer

    @property
    def is_plain(self) -> bool:
        """Whether `feed` gives back what it is given."""
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
        """Where the answer, once closed, is not what it must be."""
        if self._demand and self._demand.is_unheeded:
            return BadResponse("The model answered without the call demanded of it.")
        if self._answer is None or not self._answer.mistakes:
            return None
        return BadResponse(
            "The model's answer does not fit the JSON Schema that was asked for.",
            detail=" ".join(self._answer.mistakes),
        )

    def corrected(self, spent: UsageDelta | None) -> Adaptation | None:
        """A second round for an answer that does not fit and was not told yet.

        None where there is none: once is enough.
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
        """For another call that asks the same."""
        return self._again(self._asked)

    def moved(self, route: Route) -> Adaptation:
        """For a call that asks the same by another key."""
        asked = self._asked
        if asked.issuer is not None:  # else its proofs were taken away
            asked = replace(asked, issuer=route.endpoint.issuer(route.model))
        return self._again(asked, route)

    def repaired(self, repair: Repair, route: Route) -> Adaptation:
        """For a call that asks the same in a way that this provider may take.

        `route` is the same, but for how a request is written.
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
    """What the model can, and its wire format has a word for."""
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
    """Both together; what neither knows stays unknown."""
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
    """What is not None replaces what was."""
    known = {
        name: value
        for name in UsageDelta.__slots__
        if (value := getattr(delta, name)) is not None
    }
    return replace(usage or UsageDelta(), **known)
