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
from llm.concurrency.lent_thread import lend_thread
from llm.db.encrypted_field import scrub
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
from llm.http.staff_words import describe_error, host_message
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
    "unreachable",
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
            findings.append(Finding(key, False, str(exc), problem))
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
        raise ModelNotAvailable(f"Not tested: {why}.")
    if isinstance(what, LanguageModel):
        return what
    rows = provider.models.order_by("-enabled", "-is_default", "pk")
    if (row := rows.first()) is not None:
        row.provider = provider
        return row
    if provider.host and provider.host.default_model:
        return LanguageModel(provider=provider, name=provider.host.default_model)
    raise ModelNotAvailable("There is no model to test; add one first.")


def _keys(provider: Provider) -> Sequence[ApiKey | None]:
    if keys := list(provider.keys.all()):
        return keys
    if provider.host and provider.host.needs_key:
        raise InvalidKey("There is no key; add one first.")
    return [None]


@dataclass(slots=True)
class _KeyTest:
    key: ApiKey | None
    route: Route
    caller: Caller
    call: client.ProviderCall = field(default_factory=client.ProviderCall)
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
        if self.call.error and may_try_again(self.route, self.call):
            self.call = client.ProviderCall()
            await self._send(request)

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
            text = f"ok: {self.route.model} answered in {seconds:.1f} s."
            return Finding(self.key, True, text)
        secrets = self.route.endpoint.secrets
        provider_message = host_message(scrub(error.detail, secrets))
        problem, text = _problem(error, self.route)
        if problem_here := describe_connection_problem(error.detail):
            text, provider_message = f"{text} {problem_here}", ""
        text += _describe_state(self.key)
        text += (
            f" The provider's message: {provider_message}" if provider_message else ""
        )
        return Finding(self.key, False, text, problem)


async def _ask_all(key_tests: Sequence[_KeyTest]) -> None:
    try:
        await asyncio.gather(*(key_test.ask() for key_test in key_tests))
    finally:
        await client.aclose()


def _problem(error: LLMError, route: Route) -> tuple[Problem, str]:
    match error:
        case InvalidKey():
            return "bad key", "bad key: the provider refused it."
        case QuotaExhausted():
            text = "no quota: the credit with the provider is used up."
            return "no quota", text
        case RateLimited():
            text = "rate limit reached: the key is good, try again in a moment."
            return "rate limit", text
        case ModelNotAvailable():
            return (
                "unknown model",
                f"no such model: {route.model!r} does not exist or is not available to"
                " this key.",
            )
        case ProviderTimeout():
            return "timeout", f"no answer in time from {_address(route)}."
        case CutOff():
            return "other", f"cut off: the answer of {_address(route)} ended too early."
        case ProviderDown():
            return "unreachable", _describe_outage(error.upstream_status, route)
        case _:
            status = error.upstream_status
            of_http = f" (HTTP {status})" if status and status >= 400 else ""
            return "other", f"{error.code}: {describe_error(error)}{of_http}"


def _describe_outage(status: int | None, route: Route) -> str:
    proxy, address = route.endpoint.connection.proxy_url, _address(route)
    if status is None:
        by_proxy = f" through the proxy {proxy}" if proxy else ""
        return f"unreachable: {address} does not answer{by_proxy}."
    text = f"fails: {address} answers with HTTP {status}."
    if proxy and address.startswith("http:"):  # both answer alike there
        text += f" It may be the proxy {proxy} that answers so."
    return text


def _describe_state(key: ApiKey | None) -> str:
    """What the refusal has made of the key."""
    if key is not None and key.state == ApiKey.State.DISABLED:
        return " " + _("It is disabled until you enable it.")
    if key is not None and key.state == ApiKey.State.RESTING and key.rest_until:
        until = localize(timezone.localtime(key.rest_until))
        at = {"time": until.removesuffix(".")}  # of "p.m."
        return " " + _("It rests until %(time)s.") % at
    return ""


def _address(route: Route) -> str:
    return route.endpoint.base_url or route.endpoint.provider.base_url
