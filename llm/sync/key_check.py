"""Test of a provider's keys by a tiny real request with each."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Literal

from django.utils import timezone
from django.utils.formats import localize
from django.utils.translation import gettext as _

from llm import router
from llm.adaptation.request_repairs import repaired_route
from llm.concurrency.thread_lending import lend_thread
from llm.error_texts.for_staff import (
    add_host_message,
    describe_error,
    describe_error_and_status,
)
from llm.error_texts.staff_instructions import instruct
from llm.errors import (
    CutOff,
    InvalidKey,
    LLMError,
    ModelNotAvailable,
    ProviderDown,
    ProviderTimeout,
    QuotaExhausted,
    RateLimited,
)
from llm.http import client
from llm.http.connection_problems import SILENT, describe_connection_problem
from llm.keys.refusals import may_try_again, note_refusal
from llm.models import ApiKey, LanguageModel, ModelCall, Provider
from llm.pricing.caller import UNKNOWN_CALLER, Caller
from llm.provider import Route
from llm.wire.deltas import Delta, FinishDelta, StartDelta, UsageDelta
from llm.wire.items import user_message
from llm.wire.request import Request

TIME_LIMIT = 20.0  # seconds, because a user waits at the page
_MAX_OUTPUT_TOKENS = 16  # the smallest value that every provider accepts


Problem = Literal[
    "bad key",
    "no quota",
    "rate limit",
    "unknown model",
    "timeout",
    "unreachable",  # no answer
    "outage",  # the host answers that it fails
    "other",
]


@dataclass(frozen=True, slots=True)
class Finding:
    """The result for one key: a message for staff and a code for programs."""

    key: ApiKey | None
    works: bool
    text: str
    problem: Problem | None = None


def probe(
    what: Provider | ApiKey | LanguageModel, caller: Caller = UNKNOWN_CALLER
) -> list[Finding]:
    """Send a request with each key, resting and disabled ones too, and record the
    calls, and what a refusal means for its key, as in traffic.

    For a provider: its first model with all keys. For a key: that model with this key.
    For a model: all keys of its provider. Raises LLMError if there is no model to ask
    or no key to ask with.
    """
    provider = what if isinstance(what, Provider) else what.provider
    model = model_to_ask(what if isinstance(what, LanguageModel) else provider)
    findings, key_tests = [], []
    for key in [what] if isinstance(what, ApiKey) else _keys(provider):
        try:
            key_tests.append(_KeyTest(key, router.route_by(model, key), caller))
        except LLMError as exc:
            problem: Problem = "bad key" if isinstance(exc, InvalidKey) else "other"
            findings.append(Finding(key, False, describe_error(exc), problem))
    # In a new event loop: closing its connections ends no other requests.
    with lend_thread():
        asyncio.run(_ask_all(key_tests))
    for key_test in key_tests:
        key_test.record()
    return findings + [key_test.finding() for key_test in key_tests]


def model_to_ask(what: Provider | LanguageModel) -> LanguageModel:
    """The model itself, or the provider's first model; if it has none, an unsaved row
    of its default model. Raises ModelNotAvailable."""
    provider = what.provider if isinstance(what, LanguageModel) else what
    if why := provider.why_disabled:
        raise ModelNotAvailable(_("Not tested: %(why)s.") % {"why": instruct(why)})
    if isinstance(what, LanguageModel):
        return what
    rows = provider.models.order_by("-enabled", "-is_default", "pk")
    if (row := rows.first()) is not None:
        row.provider = provider
        return row
    if provider.host and provider.host.default_model:
        return LanguageModel(provider=provider, name=provider.host.default_model)
    raise ModelNotAvailable(_("There is no model to test; add one first."))


def _keys(provider: Provider) -> Sequence[ApiKey | None]:
    if keys := list(provider.keys.all()):
        return keys
    if provider.host and provider.host.needs_key:
        raise InvalidKey(_("There is no key; add one first."))
    return [None]


def _new_call() -> client.ProviderCall:
    return client.ProviderCall(purpose="test")


@dataclass(slots=True)
class _KeyTest:
    key: ApiKey | None
    route: Route
    caller: Caller
    call: client.ProviderCall = field(default_factory=_new_call)
    start: StartDelta | None = None
    usage: UsageDelta | None = None
    finish: FinishDelta | None = None

    async def ask(self) -> None:
        request = Request(
            model=self.route.model,
            items=[user_message("Say OK.")],
            max_output_tokens=_MAX_OUTPUT_TOKENS,
        )
        await self._send(request)
        if repaired := self._repair(request):
            self.route, self.call = repaired, _new_call()
            await self._send(request)
        if self.call.error and may_try_again(self.route, self.call):
            self.call = _new_call()
            await self._send(request)

    def _repair(self, request: Request) -> Route | None:
        error = self.call.error
        return repaired_route(self.route, request, error) if error else None

    async def _send(self, request: Request) -> None:
        stream = client.stream(self.route.endpoint, request, self.call)
        try:
            async with asyncio.timeout(TIME_LIMIT), aclosing(stream) as batches:
                async for deltas in batches:
                    self._record_deltas(deltas)
        except TimeoutError:
            self.call.error = ProviderTimeout(detail=SILENT.format(seconds=TIME_LIMIT))
        except LLMError as exc:
            self.call.error = exc

    def _record_deltas(self, deltas: Sequence[Delta]) -> None:
        for delta in deltas:
            match delta:
                case StartDelta():
                    self.start = delta
                case UsageDelta():
                    self.usage = delta
                case FinishDelta():
                    self.finish = delta

    def record(self) -> None:
        ModelCall.objects.record(
            self.call,
            self.route,
            start=self.start,
            usage=self.usage,
            finish=self.finish,
            caller=self.caller,
        )
        if self.call.error is not None and self.key is not None:
            note_refusal(self.route, self.call.error)
            self.key.refresh_from_db(fields=["state", "rest_until"])

    def finding(self) -> Finding:
        error = self.call.error
        if error is None:
            seconds = self.call.latency or 0.0
            values = {"model": self.route.model, "seconds": f"{seconds:.1f}"}
            text = _("ok: %(model)s answered in %(seconds)s s.") % values
            return Finding(self.key, True, text)
        problem = _class_of(error)
        sentences = [_describe_problem(problem, error, self.route)]
        if problem != "other" or isinstance(error, CutOff):  # else it is described
            sentences.append(describe_connection_problem(error.detail))
        sentences.append(_describe_state(self.key))
        text = " ".join(filter(None, sentences))
        text = add_host_message(text, error, self.route.endpoint.secrets)
        return Finding(self.key, False, text, problem)


async def _ask_all(key_tests: Sequence[_KeyTest]) -> None:
    try:
        await asyncio.gather(*(key_test.ask() for key_test in key_tests))
    finally:
        await client.aclose()


def _class_of(error: LLMError) -> Problem:
    match error:
        case InvalidKey():
            return "bad key"
        case QuotaExhausted():
            return "no quota"
        case RateLimited():
            return "rate limit"
        case ModelNotAvailable():
            return "unknown model"
        case ProviderTimeout():
            return "timeout"
        case ProviderDown() if not isinstance(error, CutOff):
            return "unreachable" if error.upstream_status is None else "outage"
        case _:
            return "other"


def _describe_problem(problem: Problem, error: LLMError, route: Route) -> str:
    values = {"model": route.model, "address": _address(route)}
    match problem:
        case "bad key":
            return _("bad key: the provider refused it.")
        case "no quota":
            return _("no quota: the credit with the provider is used up.")
        case "rate limit":
            return _("rate limit reached: the key is good, try again in a moment.")
        case "unknown model":
            text = _(
                "no such model: “%(model)s” does not exist or is not available to this"
                " key."
            )
            return text % values
        case "timeout":
            return _("no answer in time from %(address)s.") % values
        case "unreachable":
            return _describe_silence(route)
        case "outage":
            return _describe_outage(error.upstream_status or 0, route)
    if isinstance(error, CutOff):
        text = _("cut off: the answer of %(address)s ended too early.")
        return text % values
    return f"{error.code}: {describe_error_and_status(error)}"


def _describe_silence(route: Route) -> str:
    proxy = route.endpoint.connection.proxy_url
    values = {"address": _address(route), "proxy": proxy}
    if proxy:
        text = _(
            "unreachable: %(address)s does not answer through the proxy %(proxy)s."
        )
        return text % values
    return _("unreachable: %(address)s does not answer.") % values


def _describe_outage(status: int, route: Route) -> str:
    proxy, address = route.endpoint.connection.proxy_url, _address(route)
    values = {"address": address, "status": status, "proxy": proxy}
    if status < 400:  # the error came inside an answer
        return _("fails: %(address)s says that it is down or overloaded.") % values
    if proxy and address.startswith("http:"):  # both answer alike there
        text = _(
            "fails: %(address)s answers with HTTP %(status)s. It may be the proxy"
            " %(proxy)s that answers so."
        )
        return text % values
    return _("fails: %(address)s answers with HTTP %(status)s.") % values


def _describe_state(key: ApiKey | None) -> str:
    """What the refusal has made of the key."""
    if key is not None and key.state == ApiKey.State.DISABLED:
        return _("It is disabled until you enable it.")
    if key is not None and key.state == ApiKey.State.RESTING and key.rest_until:
        until = localize(timezone.localtime(key.rest_until))
        at = {"time": until.removesuffix(".")}  # of "p.m."
        return _("It rests until %(time)s.") % at
    return ""


def _address(route: Route) -> str:
    return route.endpoint.base_url or route.endpoint.provider.base_url
