"""Calls with retries and fallbacks: `stream`, and the state of its retries.

Any error before the first output may be retried; `retry_policy.Policy` states when. A
tool call that the model wrote wrongly is asked for once more.
After the first output nothing is repeated. A structured answer that does not fit counts
as no output if it was buffered, and is corrected in further calls
(`STRUCTURED_OUTPUT_CORRECTIONS`); a request that is refused because of what this
program added is repaired once (`request_repairs`). A request that is refused because of
its key is sent with another one (`llm.keys.selection`), which does not count as an
attempt: each request selects its key. An answer may take several requests if its
provider sends it in portions. Each request is a `ProviderCall` of its own, in `earlier`
of the next one.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import TypedDict, Unpack

from llm.adaptation import request_repairs
from llm.adaptation.adapt import Adaptation
from llm.adaptation.forwarding import address, convert
from llm.adaptation.request_repairs import Repair
from llm.adaptation.structured import OutputFormat, parse_output_format
from llm.conf import settings
from llm.errors import BadRequest, LLMError, TryAgain, for_key_owner
from llm.generation.attempt import Admit, Attempt, start_next_attempt
from llm.generation.request_builder import RequestBuilder
from llm.generation.retry_policy import DEFAULT_POLICY, Policy, is_generation_fault
from llm.http.client import ProviderCall
from llm.http.inline_files import FileCache
from llm.keys.selection import KeySelection, Wait
from llm.pools import load
from llm.provider import Route
from llm.wire.deltas import Delta, FinishDelta, StartDelta, UsageDelta
from llm.wire.request import Request

logger = logging.getLogger(__name__)

#: Repairs of a client's body that leave it in its form: of the turn that the host
#: names, of all later ones, and of one that goes on.
_MAX_REPAIRED_TURNS = 3
_START_OVER = Repair("background_resume", lambda r: replace(r, resumes=None))


class StreamOptions(TypedDict, total=False):
    """How `stream` makes its calls."""

    policy: Policy | None  # None: that of the first route
    output_format: OutputFormat | None  # instead of the request's `text.format`
    buffered: bool  # an answer in a format is yielded once it is complete and checked
    strict: bool  # the host is asked to enforce the format, not only sent its schema
    ignore_invalid: bool  # leave out all options that the model does not accept
    droppable: Collection[str]  # leave out these ones; others are refused
    files: FileCache | None  # shares downloaded files between calls
    admit: Admit | None  # called before each request
    affinity: str  # calls with the same one use the same key, and its prompt cache
    wait: Wait
    now: Callable[[], float]  # as `time.time`


def calls_made(
    call: ProviderCall,
    *,
    start: StartDelta,
    usage: UsageDelta,
    finish: FinishDelta | None,
) -> list[ProviderCall]:
    """All attempts of a call that `stream` made, oldest first, each with its usage and
    end.

    Those of the last attempt are what the caller received, unless set in the call.
    """
    last = replace(
        call,
        start=call.start or start,
        usage=call.usage or usage,
        finish=call.finish or finish,
    )
    return [*call.earlier, last]


async def stream(
    routes: Sequence[Route],
    request: Request,
    call: ProviderCall,
    **options: Unpack[StreamOptions],
) -> AsyncGenerator[list[Delta], None]:
    """Call the first of `routes`, then the others if it fails, as the policy states.

    `request` is built for the first route. Raises LLMError and nothing else; the caller
    closes it, as with `client.stream`.
    """
    retries = _retry_state(routes, request, call, options)
    # Not needed after the first output; the request may be large.
    del request, options
    await retries.start()
    while (batches := await retries.next_stream()) is not None:
        attempt, model_id = retries.attempt, retries.route.model_id
        load.running[model_id] += 1
        # Instead of `aclosing`, which needs more memory with thousands open.
        try:
            async for deltas in batches:
                if attempt.passes_through:  # nearly all deltas
                    yield deltas
                elif output := attempt.process(deltas):
                    retries.release_request()
                    yield output
                    del output
                del deltas  # freed because the next read may take long
        except LLMError as exc:
            attempt.error = exc
        finally:
            load.running[model_id] -= 1
            await batches.aclose()
        if attempt.error or model_id in load.failures:
            load.note_end(model_id, attempt.error, retries.route.key_source)
    attempt = retries.attempt
    if rest := attempt.take_pending():
        yield rest
    if attempt.error:
        raise attempt.error


def _retry_state(
    routes: Sequence[Route],
    request: Request,
    call: ProviderCall,
    options: StreamOptions,
) -> RetryState:
    """Raises BadRequest for an invalid policy or output format."""
    wait = options.get("wait", asyncio.sleep)
    output_format = options.get("output_format")
    if output_format is None and request.text:
        output_format = parse_output_format(request)
    return RetryState(
        routes=routes,
        route=routes[0],
        request=request,
        call=call,
        policy=options.get("policy") or policy_of(routes[0]),
        output_format=output_format,
        buffered=options.get("buffered", False),
        strict=options.get("strict", False),
        ignore_invalid=options.get("ignore_invalid", False),
        droppable=options.get("droppable", ()),
        files=options.get("files") or FileCache(),
        admit=options.get("admit"),
        keys=KeySelection(
            affinity=options.get("affinity", ""),
            wait=wait,
            now=options.get("now", time.time),
        ),
        wait=wait,
    )


@dataclass(slots=True, kw_only=True, eq=False, repr=False)
class RetryState:
    """The current route and attempt of a call, and what to try next.

    Await `start` before all else.
    """

    routes: Sequence[Route]
    request: Request | None  # None once output was sent
    call: ProviderCall
    policy: Policy
    output_format: OutputFormat | None
    buffered: bool
    strict: bool
    ignore_invalid: bool
    droppable: Collection[str]
    files: FileCache
    admit: Admit | None
    keys: KeySelection
    wait: Wait
    route: Route  # the current one
    attempt: Attempt = field(init=False)  # the current one
    _primary: Route = field(init=False)  # the first of `routes`, with its key
    _adaptation: Adaptation = field(init=False)
    _next_fallback: int = 1  # index of the next fallback
    _attempts: int = 1  # of this route
    _corrections: int = 0  # requests that correct an answer
    _is_repaired: bool = False
    _is_fault_retried: bool = False  # a call that the model wrote wrongly
    _repaired_turns: int = 0

    async def start(self) -> None:
        """Begin the first attempt. Raises LLMError."""
        self.call.route = self._primary = self.route
        try:
            try:
                self._primary = self.route = await self._select_key(self.route)
            except LLMError as exc:
                if await self._fall_back(exc) is None:
                    raise
            else:
                self._adaptation = self._adapt(self.route, self.ignore_invalid)
        except LLMError as exc:
            self.call.error = exc
            raise
        self._begin_attempt(self._adaptation)

    async def next_stream(self) -> AsyncGenerator[list[Delta], None] | None:
        """The stream of the next request: of this attempt, or of another one if it
        failed. None after the last one, whose `error` is set if it failed too."""
        while True:
            try:
                if batches := await self.attempt.next_portion():
                    return batches
            except LLMError as exc:
                self.attempt.error = exc
            self.attempt.close()
            if error := self.attempt.error:
                _log_failure(error, self.route, self.call)
            if (adaptation := await self._next_adaptation()) is None:
                return None
            start_next_attempt(self.call, self.route)
            if self._corrections:
                self.call.purpose = "correction"
            self._begin_attempt(adaptation)

    def _begin_attempt(self, adaptation: Adaptation) -> None:
        call = self.call
        call.route = self.route
        call.degraded, call.prefill = adaptation.degraded, adaptation.request.prefill
        self.attempt = Attempt(adaptation, call, self.route, self.files, self.admit)

    def release_request(self) -> None:
        """Release the request: output was sent, so there will be no retry."""
        self.request = None

    async def _next_adaptation(self) -> Adaptation | None:
        """The next request, for `route`, after the delay of the policy; None for the
        end."""
        attempt, call = self.attempt, self.call
        if (error := attempt.error) is None:
            return None
        for_its_key = await self.keys.judge(self.route, error, call)
        if self.route.key_source == "own":
            attempt.error = error = for_key_owner(error)
        if attempt.has_output:
            return None
        if correction := self._correct(attempt):
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

    def _correct(self, attempt: Attempt) -> Adaptation | None:
        correction = attempt.build_correction()
        if correction is None:
            return None
        if self._corrections >= settings.STRUCTURED_OUTPUT_CORRECTIONS:
            return None
        self._corrections += 1
        return correction

    def _start_over(self) -> Adaptation | None:
        """Request a response that cannot be resumed from its start."""
        if self._adaptation.request.resumes is None:
            return None
        self._adaptation = self._adaptation.with_repair(_START_OVER, self.route)
        return self._adaptation

    async def _retry(self, error: LLMError, for_its_key: bool) -> Adaptation | None:
        """The same request to the same model."""
        if self.policy.attempts == 1:
            return None
        if not (for_its_key and self.keys.has_other(self.route)):
            delay = self._delay(error)
            if delay is None:
                return None
            self._attempts += 1
            # Otherwise the key rests for that time.
            if not (for_its_key and error.retry_after):
                await self.wait(delay)
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

    def _delay(self, error: LLMError) -> float | None:
        """Seconds to wait before the same request; None for no further attempt."""
        may_repeat = (
            not self._is_fault_retried and self._attempts < self.policy.attempts
        )
        if may_repeat and is_generation_fault(error):
            self._is_fault_retried = True
            return 0.0
        return self.policy.wait(self._attempts, error)

    async def _select_key(self, route: Route) -> Route:
        assert self.request is not None, "no output was sent"
        resumes = self.request.resumes
        issuer = resumes.issuer if resumes else None
        return await self.keys.select(route, self.request.items, issuer=issuer)

    def _repair(self, error: LLMError) -> Adaptation | None:
        """The request without what was refused, at most once for a route."""
        route, adaptation = self.route, self._adaptation
        if adaptation.request.forwarded is not None:
            return self._repair_forwarded(error)
        repair = request_repairs.find(
            error,
            adaptation.request,
            route.endpoint.codec,
            ignore_invalid=self.ignore_invalid or route is not self._primary,
        )
        if repair is None or self._is_repaired:
            return None
        self._is_repaired = True
        if repair.codec:
            endpoint = replace(route.endpoint, codec=repair.codec)
            self.route = replace(route, endpoint=endpoint)
        self._adaptation = adaptation.with_repair(repair, self.route)
        return self._adaptation

    def _repair_forwarded(self, error: LLMError) -> Adaptation | None:
        """The client's request without the proofs that the host did not accept: those
        of the model that the client used before. Of the turns that the host names, if
        it does, else all of them, in canonical form."""
        route, body = self.route, self._adaptation.request.forwarded
        assert body is not None, "the caller has checked"
        if self._is_repaired or not request_repairs.concerns_proofs(error):
            return None
        if self._repaired_turns < _MAX_REPAIRED_TURNS:
            self._repaired_turns += 1
            less = request_repairs.find_in_body(
                error,
                self._adaptation.request,
                is_first=self._repaired_turns == 1,
            )
            if less is not None:
                self._adaptation = self._adaptation.with_repair(less, route)
                return self._adaptation
        try:
            request = convert(body, route)
            repair = request_repairs.find(error, request, route.endpoint.codec)
            if repair is None:
                return None
            adaptation = self._adapt(route, self.ignore_invalid, request)
            self._adaptation = adaptation.with_repair(repair, route)
        except BadRequest:
            return None  # the host's own error says more
        self._is_repaired = True
        return self._adaptation

    async def _fall_back(self, error: LLMError) -> Adaptation | None:
        if error.code not in self.policy.fall_back_on:
            return None
        for route in self.routes[self._next_fallback :]:
            self._next_fallback += 1
            try:
                route = await self._select_key(route)
                self._adaptation = self._adapt(route, ignore_invalid=True)
            except LLMError:
                continue  # this model cannot take the request, or not now
            self.route, self._attempts, self._is_repaired = route, 1, False
            self._repaired_turns, self._is_fault_retried = 0, False
            return self._adaptation
        return None

    def _adapt(
        self, route: Route, ignore_invalid: bool, converted: Request | None = None
    ) -> Adaptation:
        """`converted` is a forwarded body in canonical form."""
        assert self.request is not None, "no output was sent"
        request, output_format = self.request, self.output_format
        if converted is not None:
            request = converted
        elif request.forwarded is not None:
            request = address(request, self._primary, route)
        else:
            request = RequestBuilder(route).retarget(request, self._primary)
        if output_format is None and request.text and request.forwarded is None:
            output_format = parse_output_format(request)
        return Adaptation(
            request,
            route,
            output_format=output_format,
            buffered=self.buffered,
            strict=self.strict,
            ignore_invalid=ignore_invalid,
            droppable=self.droppable,
        )


def policy_of(route: Route) -> Policy:
    """The model's policy, set by the staff. Raises BadRequest if it is invalid."""
    if (value := route.defaults.get("retry")) is None:
        return DEFAULT_POLICY
    try:
        return Policy.read(value)
    except ValueError as exc:
        raise BadRequest(
            f"The model {route.name!r} has an invalid option; ask the staff to correct"
            f" it: {exc}"
        ) from exc


def _log_failure(error: LLMError, route: Route, call: ProviderCall) -> None:
    """One line for each failed call. No text of the provider's, which may quote the
    prompt or the key."""
    logger.warning(
        "a call of the model %r failed: %s %s, HTTP status %s, request id %r",
        route.name,
        type(error).__name__,
        error.code,
        call.http_status,
        call.request_id,
    )
