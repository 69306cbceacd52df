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

from llm import client, repairs, router
from llm.adapt import NOTHING, Adaptation, added, addressed, heard
from llm.client import Call
from llm.errors import BadRequest, LLMError, TryAgain
from llm.inline import Files, inlined
from llm.key_selection import KeySelection, Wait
from llm.models import LanguageModel
from llm.prepared import Prepared
from llm.provider import Route
from llm.repairs import Repair
from llm.retry import USUAL, Policy
from llm.structured import Form, form_of
from llm.wire.codec import Portioned
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
_SILENT = (
    AnnotationDelta,
    CloseDelta,
    FinishDelta,
    ProofDelta,
    StartDelta,
    UsageDelta,
)
_NOT_RESUMED = Repair("background_resume", lambda r: replace(r, resumes=None))
_FRESH = [
    field.name
    for field in fields(Call)
    if field.name not in ("attempt", "earlier", "route")
]

_FALLBACKS: Prepared[Any] = Prepared(
    lambda model: (
        LanguageModel.fallbacks.through.objects.filter(from_languagemodel=model)
        .order_by("pk")
        .values_list("to_languagemodel")
    ),
    -1,
)


def policy_of(route: Route) -> Policy:
    """The model's policy, set by the staff. Raises BadRequest if it is invalid."""
    if (wished := route.defaults.get("retry")) is None:
        return USUAL
    try:
        return Policy.read(wished)
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
    ids = [pk for (pk,) in _FALLBACKS.rows(route.model_id)]
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
    call: Call,
    *,
    policy: Policy | None = None,
    form: Form | None = None,
    held: bool = False,
    ignore_invalid: bool = False,
    files: Files | None = None,
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
    form = form or form_of(request)
    keys = KeySelection(affinity=affinity, wait=wait, now=now)
    trials = _Trials(routes, request, policy, form, held, ignore_invalid, keys, wait)
    del request  # it may be large and is not needed after the first output
    files = files if files is not None else Files()
    call.route = routes[0]
    try:
        adaptation = await trials.first()
    except LLMError as exc:
        call.error = exc
        raise
    call.route = trials.route
    while True:
        call.degraded = adaptation.degraded
        call.prefill = adaptation.request.prefill
        attempt = _Attempt(adaptation, call, trials.route, files, admit)
        try:
            while (batches := await attempt.portion()) is not None:
                # Instead of `aclosing`, which needs more memory with thousands open.
                try:
                    async for deltas in batches:
                        if attempt.passes:  # nearly all deltas
                            yield deltas
                        elif told := attempt.heard(deltas):
                            if attempt.has_told:
                                trials.settle()
                            yield told
                            del told
                        del deltas  # freed because the next read may take long
                finally:
                    await batches.aclose()
        except LLMError as exc:
            attempt.error = exc
        attempt.close()
        if (following := await trials.after(attempt, call)) is None:
            if rest := attempt.rest():
                yield rest
            if attempt.error:
                raise attempt.error
            return
        adaptation = following
        _begin_again(call, trials.route)


def calls_made(
    call: Call,
    *,
    start: StartDelta,
    usage: UsageDelta,
    finish: FinishDelta | None,
) -> list[Call]:
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


def _begin_again(call: Call, route: Route) -> None:
    """Append the state of `call` to `earlier` and reset it for the next attempt."""
    call.earlier = [*call.earlier, replace(call, earlier=())]
    fresh = Call()
    for name in _FRESH:
        setattr(call, name, getattr(fresh, name))
    call.attempt += 1
    call.route = route


class _Trials:
    """The current route and attempt of a call, and what to try next."""

    __slots__ = (
        "_adaptation",
        "_asked",
        "_first",
        "_following",
        "_form",
        "_held",
        "_ignore_invalid",
        "_is_mended",
        "_keys",
        "_policy",
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
        form: Form | None,
        held: bool,
        ignore_invalid: bool,
        keys: KeySelection,
        wait: Wait,
    ) -> None:
        self._first = self.route = routes[0]
        self._routes = routes
        self._following = 1  # index of the next fallback
        self._request: Request | None = request
        self._policy = policy
        self._form = form
        self._held = held
        self._ignore_invalid = ignore_invalid
        self._keys = keys
        self._wait = wait
        self._asked = 1  # of this route
        self._is_mended = False
        self._adaptation: Adaptation

    async def first(self) -> Adaptation:
        """The first request, for `route`. Raises LLMError."""
        try:
            self._first = self.route = await self._selected(self.route)
        except LLMError as exc:
            if (following := await self._fall_back(exc)) is None:
                raise
            return following
        self._adaptation = self._adapted(self.route, self._ignore_invalid)
        return self._adaptation

    def settle(self) -> None:
        """Release the request: output was sent, so there will be no retry."""
        self._request = None

    async def after(self, attempt: _Attempt, call: Call) -> Adaptation | None:
        """The next request, for `route`, after the delay of the policy; None for the
        end."""
        if (error := attempt.error) is None:
            return None
        for_its_key = await self._keys.judge(self.route, error, call)
        if attempt.has_told:
            return None
        if corrected := attempt.corrected():
            return corrected
        is_over = not isinstance(error, TryAgain) or call.http_status == 200
        if is_over and not for_its_key and (anew := self._anew()):
            return anew
        if mended := self._mended(error):
            return mended
        return (
            await self._again(error, for_its_key)
            or self._anew()
            or await self._fall_back(error)
        )

    def _anew(self) -> Adaptation | None:
        """Request a response that cannot be resumed from its start."""
        if self._adaptation.request.resumes is None:
            return None
        self._adaptation = self._adaptation.repaired(_NOT_RESUMED, self.route)
        return self._adaptation

    async def _again(self, error: LLMError, for_its_key: bool) -> Adaptation | None:
        """The same request to the same model."""
        if self._policy.attempts == 1:
            return None
        if not (for_its_key and self._keys.has_other(self.route)):
            delay = self._policy.wait(self._asked, error)
            if delay is None:
                return None
            self._asked += 1
            # Otherwise the key rests for that time.
            if not (for_its_key and error.retry_after):
                await self._wait(delay)
        try:
            route = await self._selected(self.route)
        except LLMError as exc:
            error.retry_after = exc.retry_after or error.retry_after
            return None
        if self.route is self._first:
            self._first = route
        self.route = route
        self._adaptation = self._adaptation.moved(route)
        return self._adaptation

    async def _selected(self, route: Route) -> Route:
        assert self._request is not None, "nothing has been told"
        resumes = self._request.resumes
        issuer = resumes.issuer if resumes else None
        return await self._keys.select(route, self._request.items, issuer=issuer)

    def _mended(self, error: LLMError) -> Adaptation | None:
        """The request without what was refused, at most once for a route."""
        route, adaptation = self.route, self._adaptation
        repair = repairs.find(
            error,
            adaptation.request,
            route.endpoint.codec,
            ignore_invalid=self._ignore_invalid or route is not self._first,
        )
        if repair is None or self._is_mended:
            return None
        self._is_mended = True
        if repair.codec:
            endpoint = replace(route.endpoint, codec=repair.codec)
            self.route = replace(route, endpoint=endpoint)
        self._adaptation = adaptation.repaired(repair, self.route)
        return self._adaptation

    async def _fall_back(self, error: LLMError) -> Adaptation | None:
        if error.code not in self._policy.fall_back_on:
            return None
        for route in self._routes[self._following :]:
            self._following += 1
            try:
                route = await self._selected(route)
                self._adaptation = self._adapted(route, ignore_invalid=True)
            except LLMError:
                continue  # this model cannot take the request, or not now
            self.route, self._asked, self._is_mended = route, 1, False
            return self._adaptation
        return None

    def _adapted(self, route: Route, ignore_invalid: bool) -> Adaptation:
        assert self._request is not None, "nothing has been told"
        request = addressed(self._request, route, self._first)
        return Adaptation(
            request,
            route,
            form=self._form,
            held=self._held,
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
        "_last",
        "_misfits",
        "_portioned",
        "_portions",
        "_request",
        "_route",
        "_silent",
        "_spent",
        "_start",
        "error",
        "has_told",
        "passes",
    )

    def __init__(
        self,
        adaptation: Adaptation,
        call: Call,
        route: Route,
        files: Files,
        admit: Admit | None = None,
    ) -> None:
        self.has_told = False
        self.passes = False  # deltas need not be processed any more
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
        self._portioned = decoder if isinstance(decoder, Portioned) else None
        self._misfits = False
        self._silent: Sequence[Delta] = ()
        self._last: Sequence[Delta] = ()  # deltas of the last read of a portion
        self._start: StartDelta | None = None
        #: Usage of the portions before, and of an answer that was discarded.
        self._spent: UsageDelta | None = adaptation.spent

    async def portion(self) -> AsyncGenerator[list[Delta], None] | None:
        """The stream of the next request; None at the end. Raises LLMError."""
        if self._request is None:
            request = await self._with_files()
        elif (more := self._more(self._request)) is not None:
            request = more
        else:
            return None
        self._request = request
        self._portions += 1
        if self._admit is not None:
            await self._admit(request, self._route)
        endpoint = self._route.endpoint
        return client.stream(endpoint, request, self._call, decoder=self._decoder)

    def _more(self, request: Request) -> Request | None:
        """The request for the rest of the answer to `request`."""
        if self._portioned is None or not (more := self._portioned.continuation):
            return None
        if self._portions == MAX_PORTIONS:
            self._silent = [*self._silent, FinishDelta("length")]
            return None
        request = replace(request, extra={**request.extra, **more})
        self._portioned.go_on()
        self._go_on()
        return request

    def close(self) -> None:
        self._silent = [*self._silent, *self._adaptation.close()]
        if self.error is None and (problem := self._adaptation.problem):
            self.error = self._call.error = problem
            self._misfits = True

    async def _with_files(self) -> Request:
        request = self._adaptation.request
        if request.resumes:
            return request
        request, lost = await inlined(request, self._route.endpoint, self._files)
        if lost:
            self._call.degraded = [*self._call.degraded, *lost]
        return request

    def heard(self, deltas: list[Delta]) -> list[Delta]:
        """The deltas to yield now."""
        if self.has_told and self._portioned is None:
            return self._adaptation.feed(deltas)
        if self._portioned:
            self._last = deltas
        if self._spent:
            self._listen(deltas)
            deltas = _of_all_portions(deltas, self._spent)
        elif not self.has_told:
            self._listen(deltas)
        if self._portioned and self._portioned.continuation:  # another portion follows
            deltas = [d for d in deltas if not isinstance(d, FinishDelta)]
        return self._told(self._adaptation.feed(deltas))

    def _go_on(self) -> None:
        """Start the call of the next portion."""
        call = self._call
        if not self._spent and self.has_told:
            call.start = self._start
            self._listen(self._last)
        self._spent = added(self._spent or UsageDelta(), call.usage or UsageDelta())
        degraded = call.degraded
        _begin_again(call, self._route)
        call.degraded, call.continues = degraded, True

    def corrected(self) -> Adaptation | None:
        """The correcting request after a complete but invalid answer."""
        if not self._misfits:
            return None
        usage = self._call.usage or UsageDelta()
        return self._adaptation.corrected(added(self._spent or UsageDelta(), usage))

    def rest(self) -> list[Delta]:
        """Return the deltas that were held back."""
        rest, self._silent = [*self._silent], ()
        return rest

    def _told(self, deltas: list[Delta]) -> list[Delta]:
        if self.has_told:
            return deltas
        self._silent = [*self._silent, *deltas]
        if not any(map(_says_something, deltas)):
            return []
        self.has_told = True
        self._adaptation.settle()
        if self._portioned is None:
            self._request = NOTHING
        self.passes = self._adaptation.is_plain and self._portioned is None
        if not self._spent:  # from here on the caller receives all deltas
            call = self._call
            self._start = call.start
            call.start = call.usage = call.finish = None
        return self.rest()

    def _listen(self, deltas: Sequence[Delta]) -> None:
        """Record start, usage and end, in case the caller never receives them."""
        call = self._call
        for delta in deltas:
            match delta:
                case StartDelta():
                    call.start = delta
                    self._note_background(delta.response_id)
                case UsageDelta():
                    call.usage = heard(call.usage, delta)
                case FinishDelta():
                    call.finish = delta

    def _note_background(self, response_id: str) -> None:
        if response_id and self._adaptation.request.in_background:
            issuer = self._route.endpoint.issuer(self._route.model)
            self._call.background = BackgroundResponse(response_id, issuer)


def _of_all_portions(deltas: list[Delta], spent: UsageDelta) -> list[Delta]:
    return [added(spent, d) if isinstance(d, UsageDelta) else d for d in deltas]


def _says_something(delta: Delta) -> bool:
    return not isinstance(delta, _SILENT) and getattr(delta, "text", "call") != ""
