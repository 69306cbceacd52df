"""Tool calls of one turn: saved before they run, run in groups, answered in order."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace

from llm.wire.items import Event, Item, function_call_output
from llm.wire.response_builder import ResponseBuilder, arguments_of
from tools.execute import (
    MAX_PARALLEL,
    CallBegins,
    CallOutcome,
    CallProgress,
    check_call,
    execute,
    find_tool_name,
)
from tools.execution.without_approval import ApprovalNeeded, refuses
from tools.loop.task import Record, Task
from tools.loop.untrusted_content import has_untrusted_content

#: Output that the model receives while a call runs in the background.
PLACEHOLDER = (
    "Accepted: this call goes on in the background. Its result will be told to you in a"
    " message as soon as it is there. Go on meanwhile, and do not call it again."
)
_NO_IDS: frozenset[str] = frozenset()
_EDITED = "Note: a person changed the arguments before the call ran, to {}."
_BEYOND_LIMIT = "the limit of this response is reached: 'max_tool_calls' is {}."


@dataclass(slots=True, eq=False, repr=False)
class ToolCalls:
    task: Task
    builder: ResponseBuilder
    record: Record
    outcomes: Mapping[str, CallOutcome]
    # Most turns call no tools and thousands may be open: they share empty sets.
    saved_calls: frozenset[str] = _NO_IDS  # calls that are saved and may run
    deferred: frozenset[str] = _NO_IDS  # calls that are saved when they begin
    unsaved: frozenset[str] = _NO_IDS  # calls that ended and are not saved yet
    pending_events: Sequence[Event] = ()  # built, but not stored yet

    def take_pending_events(self) -> list[Event]:
        events, self.pending_events = [*self.pending_events], ()
        return events

    async def save(self, calls: Sequence[Item]) -> None:
        """Save the calls before any of them runs. Those that wait for others are saved
        when they begin: after a crash, what is saved may have taken effect."""
        background = [c["call_id"] for c in calls if self._is_background(c)]
        if len(calls) > 1:
            calls = self._defer(calls, background)
        self.saved_calls |= {call["call_id"] for call in calls}
        await self.record.save_calls(calls, background=background)
        accepted = {
            call_id: CallOutcome(call_id, "background", PLACEHOLDER, "", 0.0)
            for call_id in background
        }
        self.outcomes = {**self.outcomes, **accepted}

    def _defer(self, calls: Sequence[Item], background: Collection[str]) -> list[Item]:
        """The calls without those that begin only after others have ended."""
        blocking = [call for call in calls if call["call_id"] not in background]
        first, *_ = self._groups(blocking) or [[]]
        begin_at_once = {call["call_id"] for call in first[:MAX_PARALLEL]}
        self.deferred |= {c["call_id"] for c in blocking} - begin_at_once
        return [call for call in calls if call["call_id"] not in self.deferred]

    async def _save_deferred(self, calls: Sequence[Item]) -> None:
        """Save those of the calls that are not saved: they begin."""
        begin = [call for call in calls if call["call_id"] in self.deferred]
        if begin:
            self.deferred -= {call["call_id"] for call in begin}
            self.saved_calls |= {call["call_id"] for call in begin}
            await self.record.save_calls(begin, background=())

    def _is_background(self, call: Item) -> bool:
        """Whether the model goes on without waiting. Calls that are refused or cannot
        run are no such calls: their errors are their outputs."""
        if self._why_refused(call):
            return False
        tools = self.task.tools
        tool = tools.get(find_tool_name(call["name"], tools))
        if tool is None or tool.blocking or check_call(call, tools):
            return False
        return not refuses(tool, arguments_of(call))

    async def run(self, calls: Sequence[Item]) -> AsyncGenerator[list[Event], None]:
        builder = self.builder
        started: list[Event] = []
        for call in calls:
            started += builder.extension(
                "parley:tool_call.started", **_ids_of(call), name=call["name"]
            )
        yield started
        known = {call["call_id"] for call in calls} & self.outcomes.keys()
        todo = [call for call in calls if call["call_id"] not in known]
        known_here = self.saved_calls | self.deferred
        if fresh := [call for call in todo if call["call_id"] not in known_here]:
            await self.save(fresh)
        # These have outcomes of an interrupted run, or run in the background.
        self.unsaved |= {c["call_id"] for c in calls} & self.outcomes.keys()
        todo = [call for call in todo if call["call_id"] not in self.outcomes]
        for group in self._groups(todo):
            updates = self._call_group(group, last=group[-1:] == todo[-1:])
            async with aclosing(updates):
                async for events in updates:
                    yield events
        # The last outcomes and the outputs are saved in one transaction.
        unsaved = [
            self.outcomes[c["call_id"]] for c in calls if c["call_id"] in self.unsaved
        ]
        events_to_save: list[Event] = []
        for outcome in unsaved:
            events_to_save += self._call_ended(
                _find_call(calls, outcome.call_id), outcome
            )
        for call in calls:
            events_to_save += builder.add(self._output(call["call_id"]))
        self.pending_events = events_to_save
        await self.record.save_outcomes(unsaved, last=True)
        self._drop_full_texts(unsaved)
        yield self.take_pending_events()

    def _groups(self, calls: Sequence[Item]) -> list[list[Item]]:
        """Groups of calls that run concurrently; those that are refused come last."""
        refused: dict[str, list[Item]] = {}
        for call in calls:
            refused.setdefault(self._why_refused(call), []).append(call)
        runnable = refused.pop("", [])
        groups = [runnable] if self.task.parallel else [[call] for call in runnable]
        return [group for group in [*groups, *refused.values()] if group]

    def _why_refused(self, call: Item) -> str:
        """The reason why the call does not run; "" if it runs."""
        if call["call_id"] in self._beyond_limit():
            return _BEYOND_LIMIT.format(self.task.max_tool_calls)
        tool = self.task.tools.get(find_tool_name(call["name"], self.task.tools))
        if tool and tool.refuses_after_untrusted and self._has_untrusted():
            return str(ApprovalNeeded())
        return ""

    def _has_untrusted(self) -> bool:
        task = self.task
        return task.has_untrusted_input() or has_untrusted_content(
            self.builder.output, task.tools
        )

    def _beyond_limit(self) -> frozenset[str]:
        """Ids of calls of our tools that exceed the request's `max_tool_calls`."""
        if (most := self.task.max_tool_calls) is None:
            return frozenset()
        calls = [
            item["call_id"]
            for item in self.builder.output
            if item["type"] == "function_call"
            and item["name"] not in self.task.client_tools
        ]
        return frozenset(calls[most:])

    def _output(self, call_id: str) -> Item:
        outcome = self.outcomes[call_id]
        output = PLACEHOLDER if outcome.state == "accepted" else outcome.output
        if (edited := self.task.arguments.get(call_id)) is not None:
            note = _EDITED.format(edited)
            if isinstance(output, str):
                output = f"{note}\n\n{output}"
            else:
                output = [{"type": "input_text", "text": note}, *output]
        return function_call_output(call_id, output)

    def _with_edited_arguments(self, call: Item) -> Item:
        edited = self.task.arguments.get(call["call_id"])
        return call if edited is None else {**call, "arguments": edited}

    async def _call_group(
        self, calls: Sequence[Item], *, last: bool
    ) -> AsyncGenerator[list[Event], None]:
        waiting = {call["call_id"] for call in calls}
        if self.deferred:
            await self._save_deferred(calls[:MAX_PARALLEL])
        running = execute(
            [self._with_edited_arguments(call) for call in calls],
            self.task.tools,
            self.task.context,
            client_tools=self.task.client_tools,
            refusal=self._why_refused(calls[0]),
        )
        async with aclosing(running):
            async for update in running:
                call = _find_call(calls, update.call_id)
                if isinstance(update, CallBegins):
                    await self._save_deferred([call])
                    continue
                if isinstance(update, CallProgress):
                    yield self.builder.extension(
                        "parley:tool_call.progress",
                        **_ids_of(call),
                        message=update.message,
                    )
                    continue
                waiting.discard(update.call_id)
                self.outcomes = {**self.outcomes, update.call_id: update}
                if last and not waiting:
                    self.unsaved |= {update.call_id}
                else:
                    await self.record.save_outcomes([update], last=False)
                    self._drop_full_texts([update])
                    yield self._call_ended(call, update)

    def _drop_full_texts(self, outcomes: Sequence[CallOutcome]) -> None:
        """Those that are stored: they are long, and the turn may go on for long."""
        cut = [each for each in outcomes if each.full_text is not None]
        if cut:
            short = {each.call_id: replace(each, full_text=None) for each in cut}
            self.outcomes = {**self.outcomes, **short}

    def _call_ended(self, call: Item, outcome: CallOutcome) -> list[Event]:
        state = "accepted" if outcome.state == "background" else outcome.state
        return self.builder.extension(
            f"parley:tool_call.{state}",
            **_ids_of(call),
            seconds=round(outcome.seconds, 3),
            **({"error": outcome.error} if outcome.error else {}),
        )


def _ids_of(call: Item) -> dict[str, str]:
    return {"call_id": call["call_id"], "item_id": call["id"]}


def _find_call(calls: Sequence[Item], call_id: str) -> Item:
    return next(call for call in calls if call["call_id"] == call_id)
