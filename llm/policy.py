"""One call by the policy of its model: attempts, and other models to fall back on.

Whatever goes wrong before the first word has reached the caller may be made good by
asking again; `retry.Policy` says when. After it nothing is repeated. A structured
answer that does not fit counts as not told, where it could be held back, and is
corrected once; a request that is refused for our own doing is mended once (`repairs`).
A request that is refused for its key is sent by another one (`key_selection`), which
does not count as an attempt: each request selects its key.
An answer may take several requests, where its provider tells it in portions. Each
request is a `Call` of its own, in `earlier` of the one that follows it.
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

#: Whether a request may be made; raises an LLMError where not.
Admit = Callable[[Request, Route], Awaitable[None]]

MAX_PORTIONS = 64  # requests for one answer
#: They are about what is said, and say nothing.
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
    """What the staff wish for this model. Raises BadRequest where it makes no sense."""
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
    """`route`, and those of its model's fallbacks that `user` can use now.

    Reads rows: one query more where there is no fallback.
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
            continue  # no key: no help to fall back on


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
    """Ask the first of `routes`, and the others where it fails, as `policy` has it.

    `request` is made for the first one. `form` defaults to what its `text.format` says;
    with `held` an answer that must have a form is told when it is known to. `files`
    keeps what was fetched for one call for those that follow. `admit` is asked before
    each request, as it is about to be made. Calls of the same `affinity`, a
    conversation's say, go out with the same key, which holds its prompt cache.

    Raises LLMError and nothing else; the caller closes it, as `client.stream`.
    """
    policy = policy if policy is not None else policy_of(routes[0])
    form = form or form_of(request)
    keys = KeySelection(affinity=affinity, wait=wait, now=now)
    trials = _Trials(routes, request, policy, form, held, ignore_invalid, keys, wait)
    del request  # which may be large, and is of no use once something is told
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
                try:  # as `aclosing`, which takes more while thousands are open
                    async for deltas in batches:
                        if attempt.passes:  # nearly all there is
                            yield deltas
                        elif told := attempt.heard(deltas):
                            if attempt.has_told:
                                trials.settle()
                            yield told
                            del told
                        del deltas  # as the next may be long in coming
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
    """Every attempt, oldest first, each with what it said.

    The last one's is what the caller heard, unless the call knows better.
    """
    last = replace(
        call,
        start=call.start or start,
        usage=call.usage or usage,
        finish=call.finish or finish,
    )
    return [*call.earlier, last]


def _begin_again(call: Call, route: Route) -> None:
    """From here on `call` is the next attempt; what it was is kept in `earlier`."""
    call.earlier = [*call.earlier, replace(call, earlier=())]
    fresh = Call()
    for name in _FRESH:
        setattr(call, name, getattr(fresh, name))
    call.attempt += 1
    call.route = route


class _Trials:
    """Whose turn it is, and how often."""

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
        self._following = 1  # the one to fall back on
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
        """What to ask first, of `route`. Raises LLMError."""
        try:
            self._first = self.route = await self._selected(self.route)
        except LLMError as exc:
            if (following := await self._fall_back(exc)) is None:
                raise
            return following
        self._adaptation = self._adapted(self.route, self._ignore_invalid)
        return self._adaptation

    def settle(self) -> None:
        """Nothing is asked anew: something has been told."""
        self._request = None

    async def after(self, attempt: _Attempt, call: Call) -> Adaptation | None:
        """What to ask next, of `route`, once it is time; None where all is said."""
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
        """A response that cannot be resumed (any more) is asked for again."""
        if self._adaptation.request.resumes is None:
            return None
        self._adaptation = self._adaptation.repaired(_NOT_RESUMED, self.route)
        return self._adaptation

    async def _again(self, error: LLMError, for_its_key: bool) -> Adaptation | None:
        """The same, of the same model."""
        if self._policy.attempts == 1:
            return None
        if not (for_its_key and self._keys.has_other(self.route)):
            delay = self._policy.wait(self._asked, error)
            if delay is None:
                return None
            self._asked += 1
            if not (for_its_key and error.retry_after):  # else its key rests so long
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
        """The same without what was refused. Once is enough."""
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
                continue  # what is asked for cannot be asked of this one, or not now
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
    """One answer, as a rule by one provider call. What comes before its first word is
    held.

    Each `portion` is read to its end and `heard`, then the answer is closed; `error`
    says what has gone wrong.
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
        self.passes = False  # what comes is told as it comes, and need not be heard
        self.error: LLMError | None = None
        self._adaptation = adaptation
        self._call = call
        self._route = route
        self._files = files
        self._admit = admit
        self._request: Request | None = None  # the last one
        self._portions = 0
        decoder = route.endpoint.codec.decoder()
        self._decoder = decoder
        self._portioned = decoder if isinstance(decoder, Portioned) else None
        self._misfits = False
        self._silent: Sequence[Delta] = ()
        self._last: Sequence[Delta] = ()  # what came with the last read of a portion
        self._start: StartDelta | None = None
        #: On the portions before, and on an answer thrown away.
        self._spent: UsageDelta | None = adaptation.spent

    async def portion(self) -> AsyncGenerator[list[Delta], None] | None:
        """The answer to the next request; None where all is said. Raises LLMError."""
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
        """What asks for the rest of what `request` did."""
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
        """What of it is to be told now."""
        if self.has_told and self._portioned is None:
            return self._adaptation.feed(deltas)
        if self._portioned:
            self._last = deltas
        if self._spent:
            self._listen(deltas)
            deltas = _of_all_portions(deltas, self._spent)
        elif not self.has_told:
            self._listen(deltas)
        if self._portioned and self._portioned.continuation:  # it has not finished
            deltas = [d for d in deltas if not isinstance(d, FinishDelta)]
        return self._told(self._adaptation.feed(deltas))

    def _go_on(self) -> None:
        """From here on the call is the one for the next portion."""
        call = self._call
        if not self._spent and self.has_told:
            call.start = self._start
            self._listen(self._last)
        self._spent = added(self._spent or UsageDelta(), call.usage or UsageDelta())
        degraded = call.degraded
        _begin_again(call, self._route)
        call.degraded, call.continues = degraded, True

    def corrected(self) -> Adaptation | None:
        """What to ask where the answer was whole, and not what it must be."""
        if not self._misfits:
            return None
        usage = self._call.usage or UsageDelta()
        return self._adaptation.corrected(added(self._spent or UsageDelta(), usage))

    def rest(self) -> list[Delta]:
        """What has not been told yet."""
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
        if not self._spent:  # from here on the caller hears it all
            call = self._call
            self._start = call.start
            call.start = call.usage = call.finish = None
        return self.rest()

    def _listen(self, deltas: Sequence[Delta]) -> None:
        """For the record, in case the caller never hears it."""
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
