"""One answer of the library: its request, its response and the provider calls for it.

`llm.api` answers with one call, and the tool loop of `tools.api` with many; both count
and record their calls here.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

from llm.adaptation.structured import OutputFormat, SchemaMismatch, parse_output_format
from llm.concurrency.calling_thread import run_with_orm
from llm.errors import LLMError
from llm.generation import retries
from llm.generation.pending_request import PendingRequest, echo_of
from llm.generation.result import Result, answer_text, cost_of, metadata_of
from llm.http.client import ProviderCall
from llm.http.inline_files import FileCache
from llm.models import ModelCall
from llm.provider import Route
from llm.wire.deltas import Delta
from llm.wire.items import Event, Item, ProviderData, new_id, text_of
from llm.wire.request import Request
from llm.wire.response_builder import ResponseBuilder


class AnswerBuilder(ResponseBuilder):
    """Keeps the error of a failed response."""

    error: LLMError | None = None

    def fail(self, error: LLMError) -> list[Event]:
        self.error = error
        return super().fail(error)


class Answer:
    """The answer to a pending request. `open` it before anything else."""

    request: Request
    builder: AnswerBuilder

    def __init__(
        self,
        pending: PendingRequest,
        *,
        output_format: OutputFormat | None = None,
        buffered: bool = False,
    ) -> None:
        self._pending = pending
        self._output_format = output_format
        self._buffered = buffered
        self.id = new_id("resp")  # of the response
        self._files = FileCache()
        self._routes: Sequence[Route] = ()
        self._proofs: dict[str, ProviderData] = {}  # by item id
        self._calls: list[ProviderCall] = []
        self._first_step = 0  # provider calls of the first step
        self._costs: list[Decimal | None] = []  # of the calls that are settled

    async def open(self) -> list[Event]:
        """Find the model and build the request. Returns the first events.

        Raises LLMError, and any exception of a context function.
        """
        routes = await run_with_orm(self._pending.routes)
        self._routes = await self._pending.add_key(routes)
        route = self._routes[0]
        self.request = await self._pending.request(route)
        self._output_format = self._output_format or parse_output_format(self.request)
        self.builder = AnswerBuilder(
            id=self.id, model=route.name, echo=echo_of(self.request)
        )
        return self.builder.start()

    def call_model(
        self, request: Request, call: ProviderCall
    ) -> AsyncGenerator[list[Delta], None]:
        """Call the model, with its retries and fallbacks. Raises LLMError."""
        return retries.stream(
            self._routes,
            request,
            call,
            policy=self._pending.policy,
            output_format=self._output_format,
            buffered=self._buffered,
            strict=True,
            ignore_invalid=self._pending.ignore_invalid,
            files=self._files,
            affinity=self.request.prompt_cache_key or self.id,
        )

    def record_call(self, call: ProviderCall) -> None:
        """Note the provider calls that were made for a step, which has ended."""
        builder = self.builder
        made = retries.calls_made(
            call,
            start=builder.start_delta,
            usage=builder.call_usage,
            finish=builder.finish,
        )
        # Excludes requests that this program refused itself.
        self._calls += [each for each in made if each.started_at]
        self._first_step = self._first_step or len(self._calls)

    def items(self) -> list[Item]:
        """The output with its proofs. Call it before each further call: what is new
        in the output came from the last one."""
        builder, route = self.builder, self._route
        if not builder.proofs:
            return list(builder.output)
        issuer = route.issuer
        for item_id, raw in builder.proofs.items():
            self._proofs.setdefault(item_id, {"issuer": issuer, "raw": raw})
        return [_with_proof(item, self._proofs) for item in builder.output]

    async def settle(self) -> None:
        """Write the `ModelCall` rows of the calls since the last time; all have
        ended."""
        if self._pending.record and len(self._costs) < len(self._calls):
            await run_with_orm(self._settle)

    async def end(self) -> None:
        """As `settle`, when no call follows; counts costs without rows too. If the
        response has not ended, its last call was cancelled."""
        if len(self._costs) < len(self._calls):
            await run_with_orm(self._settle, cancelled=not self.builder.ended)

    def result(self, *, tool_seconds: float = 0.0) -> Result:
        """The result, after the end."""
        response, items = self.builder.response(), self.items()
        result = Result(
            text=answer_text(items),
            items=items,
            metadata=metadata_of(
                self._calls,
                response,
                route=self._routes[0],
                costs=self._costs,
                first_step=self._first_step,
                tool_seconds=tool_seconds,
            ),
            response=response,
        )
        return replace(result, parsed=self._parse(result))

    @property
    def _route(self) -> Route:
        """The route of the last call, which may be a fallback."""
        return (self._calls[-1].route if self._calls else None) or self._routes[0]

    def _settle(self, *, cancelled: bool = False) -> None:
        for call in self._calls[len(self._costs) :]:
            assert call.route is not None
            if not self._pending.record:
                self._costs.append(cost_of(call, call.route))
                continue
            row = ModelCall.objects.record(
                call,
                call.route,
                attempt=call.attempt,
                start=call.start,
                usage=call.usage,
                finish=call.finish,
                cancelled=cancelled and call is self._calls[-1],
                caller=self._pending.caller,
            )
            self._costs.append(row.cost)

    def _parse(self, result: Result) -> Any:
        """The answer in the requested format; None if there is no such answer."""
        is_whole = result.response["status"] == "completed" and not result.refusal
        if self._output_format is None or not is_whole:
            return None
        items = [item for item in result.answer if item.get("phase") != "commentary"]
        try:
            return self._output_format.parse("".join(map(text_of, items)))
        except SchemaMismatch:
            return None


def _with_proof(item: Item, proofs: dict[str, ProviderData]) -> Item:
    proof = proofs.get(item["id"])
    return {**item, "provider_data": proof} if proof else item
