"""Makes compactions for the tool loop: decides when, and has a model write the summary.

The database is reached through two functions that the engine gives it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, replace

from conversations.turns.compaction import (
    KEEP,
    MIN_GAIN,
    Log,
    Plan,
    apply_compaction,
    compaction_item,
    find_active,
    is_declined,
    plan_compaction,
)
from conversations.turns.history import (
    BYTES_A_TOKEN,
    ESTIMATE_ERROR,
    estimate_tokens,
)
from conversations.turns.summary_requests import (
    end_at_sentence,
    instructions,
    part_prompt,
    shorten,
    transcript_parts,
)
from llm.errors import BadResponse, ContextTooLarge, LLMError
from llm.http.client import ProviderCall, Stream
from llm.wire.deltas import NATURAL_ENDS
from llm.wire.items import Item, output_text, user_message
from llm.wire.request import Request
from llm.wire.response_builder import ResponseBuilder
from llm.wire.text.thoughts import remove_thought
from tools.loop.answer_size import AnswerSize
from tools.loop.task import Record

MAX_SUMMARY_SIZE = 1_000_000  # bytes of an answer, its reasoning included
MAX_WORDS, MIN_WORDS = 1500, 100  # of a summary
_WORDS_A_TOKEN = 0.5  # on the safe side
_WORDS_OF_LIMIT = 0.4  # a model takes up what it may write
_LEAST_EFFORTS = ("low", "minimal", "none")
_SUMMARY_SHARE = 0.1  # of the room for prompts
_PART_SHARE = 0.7  # of the room, or of a conversation that was refused
_HALVINGS = 2  # of the parts, if the model refuses them too


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowCompactor:
    """Replaces a conversation's earlier items by a summary when it becomes too long."""

    open_stream: Callable[[], Stream]
    build: Callable[[Request], Request]  # addresses a request to the model
    room: int | None  # tokens that a prompt may have; None if unknown
    threshold: float  # share of the room above which a compaction is made
    #: The tokens of the next prompt by the provider's count of the last call; None if
    #: it is unknown, or if the context has changed since.
    measure: Callable[[], Awaitable[int | None]]
    load: Callable[[], Awaitable[Log]]  # reads the whole conversation
    reload_history: Callable[[], Awaitable[None]]
    is_exhausted: Callable[[], bool] = lambda: False  # no model call may be paid for

    def is_due(self, request: Request) -> bool:
        """Whether `plan` should be called before this request, which looks up the
        provider's count of the last call; a rough check."""
        assert self.room is not None, "otherwise no compaction is due"
        return _size_of(request) * ESTIMATE_ERROR > self.room * self.threshold

    async def plan(self, request: Request | None) -> Plan | None:
        """The compaction to be made before `request`; or without one, after the model
        has refused the conversation as too long."""
        if request is None:
            return await self._plan_after_refusal()
        assert self.room is not None, "otherwise no compaction is due"
        estimated = _size_of(request)
        tokens = await self.measure() or estimated
        if tokens <= self.room * self.threshold:
            return None
        log = await self.load()
        if is_declined(log):
            return None
        by_estimate = self.room * estimated / tokens  # the room, as we estimate it
        return plan_compaction(
            log, keep=int(by_estimate * KEEP), at_least=int(by_estimate * MIN_GAIN)
        )

    async def _plan_after_refusal(self) -> Plan | None:
        log = await self.load()
        active = find_active(log.compactions, log.order)
        sent = apply_compaction(log.entries, active, log.order)
        size = estimate_tokens("", sent)
        room = min(self.room or size, size)
        return plan_compaction(
            log, keep=int(room * KEEP), at_least=int(room * MIN_GAIN / 2)
        )

    async def reload(self) -> None:
        """Make further requests from what is stored."""
        await self.reload_history()

    async def summarise(self, plan: Plan, record: Record) -> Item:
        """The compaction item. Each model call is given to `record`. Raises
        LLMError."""
        size = sum(estimate_tokens("", [item]) for item in plan.items)
        part = int((self.room or size) * _PART_SHARE)
        for _ in range(_HALVINGS):
            try:
                return compaction_item(plan, await self._write(plan, part, record))
            except ContextTooLarge:
                part //= 2
        return compaction_item(plan, await self._write(plan, part, record))

    async def _write(self, plan: Plan, part_tokens: int, record: Record) -> str:
        summary = plan.summary
        for part in transcript_parts(plan.items, part_tokens):
            if self.is_exhausted():
                raise _CostExhausted
            summary = await self._call(part_prompt(summary, part), record)
        return summary

    async def _call(self, prompt: str, record: Record) -> str:
        tokens = int(self.room * _SUMMARY_SHARE) if self.room else MAX_WORDS * 2
        request = self.build(Request(model="", items=[user_message(prompt)]))
        limit = request.max_output_tokens  # by staff
        words = _words(tokens, limit)
        request = replace(request, instructions=instructions(words))
        answer = await self._ask(request, record)
        if not _is_whole(answer) and not self.is_exhausted():
            answer = await self._ask(_shorter(request, words), record)
        text = remove_thought(output_text(answer.output)).strip()
        if limit and answer.finish and answer.finish.reason == "length":
            # Without any, the conversation would end at the room of the model.
            text = end_at_sentence(text)
        elif not _is_whole(answer):
            # Half a summary would be all that the model knows from now on.
            text = ""
        if not text:
            raise BadResponse("The model returned no summary.")
        # A model that ignores the limit must not fill the room with its summary.
        return shorten(text, max(tokens, 2 * MIN_WORDS) * 2 * BYTES_A_TOKEN)

    async def _ask(self, request: Request, record: Record) -> ResponseBuilder:
        call, answer = ProviderCall(purpose="summary"), ResponseBuilder(id="", model="")
        answer.begin_call()
        size = AnswerSize(MAX_SUMMARY_SIZE)
        try:
            async with aclosing(self.open_stream()(request, call)) as batches:
                async for deltas in batches:
                    answer.feed(size.take(deltas))
                    if size.is_exceeded:
                        break
        finally:
            call.start = call.start or answer.start_delta
            call.usage = call.usage or answer.call_usage
            call.finish = call.finish or answer.finish
            record.record_model_call(call)
        answer.end_call()
        return answer


def _words(tokens: int, limit: int | None) -> int:
    """Of a summary for which there is room for `tokens`; `limit` is one of the whole
    answer."""
    words = max(MIN_WORDS, min(MAX_WORDS, int(tokens * _WORDS_A_TOKEN)))
    return min(words, int(limit * _WORDS_OF_LIMIT)) if limit else words


def _shorter(request: Request, words: int) -> Request:
    """The model may have spent its limit on thoughts, or on a language that takes many
    tokens."""
    effort = (request.reasoning or {}).get("effort")
    if effort not in _LEAST_EFFORTS:
        request = replace(request, reasoning={"effort": "low"})
    return replace(request, instructions=instructions(words // 2))


def _is_whole(answer: ResponseBuilder) -> bool:
    return answer.finish is not None and answer.finish.reason in NATURAL_ENDS


class _CostExhausted(LLMError):
    """The message has reached its cost limit."""

    code, status = "E_COST_EXHAUSTED", 402


def _size_of(request: Request) -> int:
    return estimate_tokens(request.instructions, request.items, request.tools)
