"""One attempt of a call: an answer by one provider request, or by several portions."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import fields, replace
from typing import cast

from llm.adaptation.adapt import EMPTY_REQUEST, Adaptation, add_usage, merge_usage
from llm.errors import LLMError
from llm.generation.office_parts import read_office_files
from llm.http import client
from llm.http.client import ProviderCall
from llm.http.inline_files import FileCache, inline_files
from llm.provider import Route
from llm.wire.codec import ContinuableDecoder, Decoder
from llm.wire.deltas import (
    AnnotationDelta,
    CloseDelta,
    Delta,
    FinishDelta,
    FrameDelta,
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
    FrameDelta,
    ProofDelta,
    StartDelta,
    UsageDelta,
)
_RESET_FIELDS = [
    field.name
    for field in fields(ProviderCall)
    if field.name not in ("attempt", "cache", "earlier", "purpose", "route")
]


class Attempt:
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
        self._decoder: Decoder = route.endpoint.codec.decoder()
        self._portioned: ContinuableDecoder | None = None
        # `isinstance` with a protocol takes ten times as long.
        if hasattr(self._decoder, "continue_answer"):
            self._portioned = cast(ContinuableDecoder, self._decoder)
        self._is_invalid = False
        self._pending: Sequence[Delta] = ()
        self._last: Sequence[Delta] = ()  # deltas of the last read of a portion
        self._start: StartDelta | None = None
        #: Usage of the portions before, and of an answer that was discarded.
        self._spent: UsageDelta | None = adaptation.spent

    async def next_portion(self) -> AsyncGenerator[list[Delta], None] | None:
        """The stream of the next request; None at the end, also after an error. Raises
        LLMError."""
        if self.error is not None:
            return None
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
        if request.resumes or self._adaptation.has_only_texts:
            return request
        request, not_fetched = await inline_files(
            request, self._route.endpoint, self._files
        )
        request, not_read = await read_office_files(request, self._files.office_texts)
        if not_fetched or not_read:
            lost = [*not_fetched, *not_read]
            self._call.degraded = [*self._call.degraded, *lost]
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
        start_next_attempt(call, self._route)
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
        # A whole answer that has failed may still be asked for again.
        if self._call.error is not None or not any(map(_has_content, deltas)):
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
            issuer = self._route.issuer
            self._call.background = BackgroundResponse(response_id, issuer)


def _add_spent_usage(deltas: list[Delta], spent: UsageDelta) -> list[Delta]:
    return [add_usage(spent, d) if isinstance(d, UsageDelta) else d for d in deltas]


def _has_content(delta: Delta) -> bool:
    if isinstance(delta, _CONTENTLESS):
        return isinstance(delta, FrameDelta) and delta.has_content
    return getattr(delta, "text", "call") != ""


def start_next_attempt(call: ProviderCall, route: Route) -> None:
    """Append the state of `call` to `earlier` and reset it for the next attempt."""
    call.earlier = [*call.earlier, replace(call, earlier=())]
    fresh = ProviderCall()
    for name in _RESET_FIELDS:
        setattr(call, name, getattr(fresh, name))
    call.attempt += 1
    call.route = route
