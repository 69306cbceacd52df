"""Calls with retries and fallbacks, by the policy of the model.

Any error before the first output may be retried; `retry.Policy` states when. After the
first output nothing is repeated. A structured answer that does not fit counts as no
output if it was buffered, and is corrected once; a request that is refused because of
what this program added is repaired once (`repairs`). A request that is refused because
of its key is sent with another one (`key_selection`), which does not count as an
attempt: each request selects its key. An answer may take several requests if its
provider sends it in portions. Each request is a `ProviderCall` of its own, in
`earlier` of the next one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Iterator,
    Sequence,
)
from dataclasses import fields, replace
from typing import Any

from llm import router
from llm.adapt import EMPTY_REQUEST, Adaptation, add_usage, merge_usage, retarget
from llm.adaptation import repairs
from llm.adaptation.repairs import Repair
from llm.db.compiled_queries import CompiledQuery
from llm.errors import BadRequest, LLMError, TryAgain
from llm.generation.retry_policy import DEFAULT_POLICY, Policy
from llm.http import client
from llm.http.client import ProviderCall
from llm.http.inline_files import FileCache, inline_files
from llm.keys.selection import KeySelection, Wait
from llm.models import LanguageModel
from llm.provider import Route
from llm.structured import OutputFormat, parse_output_format
from llm.wire.codec import ContinuableDecoder
from llm.wire.deltas import (
    AnnotationDelta,
    CloseDelta,
    Delta,
    FinishDelta,
    ProofDelta,
    StartDelta,
    UsageDelta,
)
from llm.wire.request import BackgroundResponse, Request

#: Checks whether a request may be made; raises an LLMError if not.
Admit = Callable[[Request, Route], Awaitable[None]]

MAX_PORTIONS = 64  # requests for one answer
#: Deltas without content.
_CONTENTLESS = (
    AnnotationDelta,
    CloseDelta,
    FinishDelta,
    ProofDelta,
    StartDelta,
    UsageDelta,
)
_START_OVER = Repair("background_resume", lambda r: replace(r, resumes=None))
_RESET_FIELDS = [
    field.name
    for field in fields(ProviderCall)
    if field.name not in ("attempt", "earlier", "route")
]

_FALLBACK_IDS: CompiledQuery[Any] = CompiledQuery(
    lambda model: (
        LanguageModel.fallbacks.through.objects.filter(from_languagemodel=model)
        .order_by("pk")
        .values_list("to_languagemodel")
    ),
    -1,
)


def policy_of(route: Route) -> Policy:
    """The model's policy, set by the staff. Raises BadRequest if it is invalid."""
    if (value := route.defaults.get("retry")) is None:
        return DEFAULT_POLICY
    try:
        return Policy.read(value)
    except ValueError as exc:
        raise BadRequest(
            f"The model {route.name!r} has a wrong option; the staff must correct it:"
            f" {exc}"
        ) from exc


def routes_of(route: Route, *, user: Any = None) -> list[Route]:
    """`route` and the routes to its fallback models that `user` can use now.

    Reads rows; without a fallback it is one query.
    """
    if route.model_id is None:
        return [route]
    ids = [pk for (pk,) in _FALLBACK_IDS.rows(route.model_id)]
    if not ids:
        return [route]
    found = router.available(user).in_bulk(ids)
    return [route, *_usable(found[pk] for pk in ids if pk in found)]


def _usable(models: Iterator[LanguageModel]) -> Iterator[Route]:
    for model in models:
        try:
            yield router.route_of(model)
        except LLMError:
            continue  # a model without a key is no fallback


async def stream(
    routes: Sequence[Route],
    request: Request,
    call: ProviderCall,
    *,
    policy: Policy | None = None,
    output_format: OutputFormat | None = None,
    buffered: bool = False,
    ignore_invalid: bool = False,
    files: FileCache | None = None,
    admit: Admit | None = None,
    affinity: str = "",
    wait: Wait = asyncio.sleep,
    now: Callable[[], float] = time.time,
) -> AsyncGenerator[list[Delta], None]:
    """Call the first of `routes`, then the others if it fails, as `policy` states.

    `request` is built for the first route. `output_format` defaults to the request's
    `text.format`; with `buffered` an answer in a format is yielded once it is complete
    and checked. `files` shares downloaded files between calls. `admit` is called before
    each request. Calls with the same `affinity`, such as a conversation's id, use the
    same key, whose prompt cache they share.

    Raises LLMError and nothing else; the caller closes it, as with `client.stream`.
    """
    policy = policy if policy is not None else policy_of(routes[0])
    output_format = output_format or parse_output_format(request)
    keys = KeySelection(affinity=affinity, wait=wait, now=now)
    retries = _RetryState(
        routes, request, policy, output_format, buffered, ignore_invalid, keys, wait
    )
    del request  # it may be large and is not needed after the first output
    files = files if files is not None else FileCache()
    call.route = routes[0]
    try:
        adaptation = await retries.start()
    except LLMError as exc:
        call.error = exc
        raise
    call.route = retries.route
    while True:
        call.degraded = adaptation.degraded
        call.prefill = adaptation.request.prefill
        attempt = _Attempt(adaptation, call, retries.route, files, admit)
        try:
            while (batches := await attempt.next_portion()) is not None:
                # Instead of `aclosing`, which needs more memory with thousands open.
                try:
                    async for deltas in batches:
                        if attempt.passes_through:  # nearly all deltas
                            yield deltas
                        elif output := attempt.process(deltas):
                            if attempt.has_output:
                                retries.release_request()
                            yield output
                            del output
                        del deltas  # freed because the next read may take long
                finally:
                    await batches.aclose()
        except LLMError as exc:
            attempt.error = exc
        attempt.close()
        if (next_adaptation := await retries.next_adaptation(attempt, call)) is None:
            if rest := attempt.take_pending():
                yield rest
            if attempt.error:
                raise attempt.error
            return
        adaptation = next_adaptation
        _start_next_attempt(call, retries.route)


def calls_made(
    call: ProviderCall,
    *,
    start: StartDelta,
    usage: UsageDelta,
    finish: FinishDelta | None,
) -> list[ProviderCall]:
    """All attempts, oldest first, each with its usage and end.

    Those of the last call are what the caller received, unless set in the call.
    """
    last = replace(
        call,
        start=call.start or start,
        usage=call.usage or usage,
        finish=call.finish or finish,
    )
    return [*call.earlier, last]


def _start_next_attempt(call: ProviderCall, route: Route) -> None:
    """Append the state of `call` to `earlier` and reset it for the next attempt."""
    call.earlier = [*call.earlier, replace(call, earlier=())]
    fresh = ProviderCall()
    for name in _RESET_FIELDS:
        setattr(call, name, getattr(fresh, name))
    call.attempt += 1
    call.route = route


class _RetryState:
    """The current route and attempt of a call, and what to try next."""

    __slots__ = (
        "_adaptation",
        "_attempts",
        "_buffered",
        "_ignore_invalid",
        "_is_repaired",
        "_keys",
        "_next_fallback",
        "_output_format",
        "_policy",
        "_primary",
        "_request",
        "_routes",
        "_wait",
        "route",
    )

    def __init__(
        self,
        routes: Sequence[Route],
        request: Request,
        policy: Policy,
        output_format: OutputFormat | None,
        buffered: bool,
        ignore_invalid: bool,
        keys: KeySelection,
        wait: Wait,
    ) -> None:
        self._primary = self.route = routes[0]
        self._routes = routes
        self._next_fallback = 1  # index of the next fallback
        self._request: Request | None = request
        self._policy = policy
        self._output_format = output_format
        self._buffered = buffered
        self._ignore_invalid = ignore_invalid
        self._keys = keys
        self._wait = wait
        self._attempts = 1  # of this route
        self._is_repaired = False
        self._adaptation: Adaptation

    async def start(self) -> Adaptation:
        """The first request, for `route`. Raises LLMError."""
        try:
            self._primary = self.route = await self._select_key(self.route)
        except LLMError as exc:
            if (adaptation := await self._fall_back(exc)) is None:
                raise
            return adaptation
        self._adaptation = self._adapt(self.route, self._ignore_invalid)
        return self._adaptation

    def release_request(self) -> None:
        """Release the request: output was sent, so there will be no retry."""
        self._request = None

    async def next_adaptation(
        self, attempt: _Attempt, call: ProviderCall
    ) -> Adaptation | None:
        """The next request, for `route`, after the delay of the policy; None for the
        end."""
        if (error := attempt.error) is None:
            return None
        for_its_key = await self._keys.judge(self.route, error, call)
        if attempt.has_output:
            return None
        if correction := attempt.build_correction():
            return correction
        is_over = not isinstance(error, TryAgain) or call.http_status == 200
        if is_over and not for_its_key and (restarted := self._start_over()):
            return restarted
        if repaired := self._repair(error):
            return repaired
        return (
            await self._retry(error, for_its_key)
            or self._start_over()
            or await self._fall_back(error)
        )

    def _start_over(self) -> Adaptation | None:
        """Request a response that cannot be resumed from its start."""
        if self._adaptation.request.resumes is None:
            return None
        self._adaptation = self._adaptation.with_repair(_START_OVER, self.route)
        return self._adaptation

    async def _retry(self, error: LLMError, for_its_key: bool) -> Adaptation | None:
        """The same request to the same model."""
        if self._policy.attempts == 1:
            return None
        if not (for_its_key and self._keys.has_other(self.route)):
            delay = self._policy.wait(self._attempts, error)
            if delay is None:
                return None
            self._attempts += 1
            # Otherwise the key rests for that time.
            if not (for_its_key and error.retry_after):
                await self._wait(delay)
        try:
            route = await self._select_key(self.route)
        except LLMError as exc:
            error.retry_after = exc.retry_after or error.retry_after
            return None
        if self.route is self._primary:
            self._primary = route
        self.route = route
        self._adaptation = self._adaptation.with_route(route)
        return self._adaptation

    async def _select_key(self, route: Route) -> Route:
        assert self._request is not None, "nothing has been told"
        resumes = self._request.resumes
        issuer = resumes.issuer if resumes else None
        return await self._keys.select(route, self._request.items, issuer=issuer)

    def _repair(self, error: LLMError) -> Adaptation | None:
        """The request without what was refused, at most once for a route."""
        route, adaptation = self.route, self._adaptation
        repair = repairs.find(
            error,
            adaptation.request,
            route.endpoint.codec,
            ignore_invalid=self._ignore_invalid or route is not self._primary,
        )
        if repair is None or self._is_repaired:
            return None
        self._is_repaired = True
        if repair.codec:
            endpoint = replace(route.endpoint, codec=repair.codec)
            self.route = replace(route, endpoint=endpoint)
        self._adaptation = adaptation.with_repair(repair, self.route)
        return self._adaptation

    async def _fall_back(self, error: LLMError) -> Adaptation | None:
        if error.code not in self._policy.fall_back_on:
            return None
        for route in self._routes[self._next_fallback :]:
            self._next_fallback += 1
            try:
                route = await self._select_key(route)
                self._adaptation = self._adapt(route, ignore_invalid=True)
            except LLMError:
                continue  # this model cannot take the request, or not now
            self.route, self._attempts, self._is_repaired = route, 1, False
            return self._adaptation
        return None

    def _adapt(self, route: Route, ignore_invalid: bool) -> Adaptation:
        assert self._request is not None, "nothing has been told"
        request = retarget(self._request, route, self._primary)
        return Adaptation(
            request,
            route,
            output_format=self._output_format,
            buffered=self._buffered,
            ignore_invalid=ignore_invalid,
        )


class _Attempt:
    """One answer, usually by one provider call. Deltas before the first content are
    held back.

    Read each `next_portion` to its end through `process`, then close the attempt;
    `error` is set if it failed.
    """

    __slots__ = (
        "_adaptation",
        "_admit",
        "_call",
        "_decoder",
        "_files",
        "_is_invalid",
        "_last",
        "_pending",
        "_portioned",
        "_portions",
        "_request",
        "_route",
        "_spent",
        "_start",
        "error",
        "has_output",
        "passes_through",
    )

    def __init__(
        self,
        adaptation: Adaptation,
        call: ProviderCall,
        route: Route,
        files: FileCache,
        admit: Admit | None = None,
    ) -> None:
        self.has_output = False
        self.passes_through = False  # deltas need not be processed any more
        self.error: LLMError | None = None
        self._adaptation = adaptation
        self._call = call
        self._route = route
        self._files = files
        self._admit = admit
        self._request: Request | None = None  # the last one sent
        self._portions = 0
        decoder = route.endpoint.codec.decoder()
        self._decoder = decoder
        self._portioned = decoder if isinstance(decoder, ContinuableDecoder) else None
        self._is_invalid = False
        self._pending: Sequence[Delta] = ()
        self._last: Sequence[Delta] = ()  # deltas of the last read of a portion
        self._start: StartDelta | None = None
        #: Usage of the portions before, and of an answer that was discarded.
        self._spent: UsageDelta | None = adaptation.spent

    async def next_portion(self) -> AsyncGenerator[list[Delta], None] | None:
        """The stream of the next request; None at the end. Raises LLMError."""
        if self._request is None:
            request = await self._with_files()
        elif (more := self._continuation(self._request)) is not None:
            request = more
        else:
            return None
        self._request = request
        self._portions += 1
        if self._admit is not None:
            await self._admit(request, self._route)
        endpoint = self._route.endpoint
        return client.stream(endpoint, request, self._call, decoder=self._decoder)

    def _continuation(self, request: Request) -> Request | None:
        """The request for the rest of the answer to `request`."""
        if self._portioned is None or not (more := self._portioned.continuation):
            return None
        if self._portions == MAX_PORTIONS:
            self._pending = [*self._pending, FinishDelta("length")]
            return None
        request = replace(request, extra={**request.extra, **more})
        self._portioned.continue_answer()
        self._begin_portion()
        return request

    def close(self) -> None:
        self._pending = [*self._pending, *self._adaptation.close()]
        if self.error is None and (problem := self._adaptation.problem):
            self.error = self._call.error = problem
            self._is_invalid = True

    async def _with_files(self) -> Request:
        request = self._adaptation.request
        if request.resumes:
            return request
        request, not_fetched = await inline_files(
            request, self._route.endpoint, self._files
        )
        if not_fetched:
            self._call.degraded = [*self._call.degraded, *not_fetched]
        return request

    def process(self, deltas: list[Delta]) -> list[Delta]:
        """The deltas to yield now."""
        if self.has_output and self._portioned is None:
            return self._adaptation.feed(deltas)
        if self._portioned:
            self._last = deltas
        if self._spent:
            self._record(deltas)
            deltas = _add_spent_usage(deltas, self._spent)
        elif not self.has_output:
            self._record(deltas)
        if self._portioned and self._portioned.continuation:  # another portion follows
            deltas = [d for d in deltas if not isinstance(d, FinishDelta)]
        return self._release(self._adaptation.feed(deltas))

    def _begin_portion(self) -> None:
        """Start the call of the next portion."""
        call = self._call
        if not self._spent and self.has_output:
            call.start = self._start
            self._record(self._last)
        self._spent = add_usage(self._spent or UsageDelta(), call.usage or UsageDelta())
        degraded = call.degraded
        _start_next_attempt(call, self._route)
        call.degraded, call.continues = degraded, True

    def build_correction(self) -> Adaptation | None:
        """The correcting request after a complete but invalid answer."""
        if not self._is_invalid:
            return None
        usage = self._call.usage or UsageDelta()
        return self._adaptation.build_correction(
            add_usage(self._spent or UsageDelta(), usage)
        )

    def take_pending(self) -> list[Delta]:
        """Return the deltas that were held back."""
        pending, self._pending = [*self._pending], ()
        return pending

    def _release(self, deltas: list[Delta]) -> list[Delta]:
        if self.has_output:
            return deltas
        self._pending = [*self._pending, *deltas]
        if not any(map(_has_content, deltas)):
            return []
        self.has_output = True
        self._adaptation.release_request()
        if self._portioned is None:
            self._request = EMPTY_REQUEST
        self.passes_through = self._adaptation.is_plain and self._portioned is None
        if not self._spent:  # from here on the caller receives all deltas
            call = self._call
            self._start = call.start
            call.start = call.usage = call.finish = None
        return self.take_pending()

    def _record(self, deltas: Sequence[Delta]) -> None:
        """Record start, usage and end, in case the caller never receives them."""
        call = self._call
        for delta in deltas:
            match delta:
                case StartDelta():
                    call.start = delta
                    self._note_background(delta.response_id)
                case UsageDelta():
                    call.usage = merge_usage(call.usage, delta)
                case FinishDelta():
                    call.finish = delta

    def _note_background(self, response_id: str) -> None:
        if response_id and self._adaptation.request.in_background:
            issuer = self._route.endpoint.issuer(self._route.model)
            self._call.background = BackgroundResponse(response_id, issuer)


def _add_spent_usage(deltas: list[Delta], spent: UsageDelta) -> list[Delta]:
    return [add_usage(spent, d) if isinstance(d, UsageDelta) else d for d in deltas]


def _has_content(delta: Delta) -> bool:
    return not isinstance(delta, _CONTENTLESS) and getattr(delta, "text", "call") != ""
