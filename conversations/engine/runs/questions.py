"""Forms that a running tool asks a person to fill in."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from conversations.engine import question_store
from conversations.engine.database.executor import Database
from conversations.engine.loading.approvals import question_payload
from conversations.engine.question_store import NewQuestion
from conversations.engine.runs.record import RunEvents, TurnClock
from conversations.engine.runs.state import RunState
from conversations.engine.runs.writes import RunWrites
from conversations.models import Question
from llm.db.outages import UNREACHABLE
from tools.registry import Context, FormAnswer

POLL_INTERVAL = 2.0  # seconds between polls, in case a notification is lost


@dataclass(slots=True, eq=False, repr=False)
class RunQuestions:
    """Shows the forms of one run to its subscribers, and waits for the answers."""

    state: RunState
    database: Database
    writes: RunWrites
    events: RunEvents
    clock: TurnClock
    #: By question; None if there was no question yet.
    _answered: dict[str, asyncio.Event] | None = None

    async def ask(
        self, context: Context, message: str, schema: Mapping[str, Any]
    ) -> FormAnswer:
        """Show a form to the subscribers, and wait for the answer. Raises
        StaleEpoch."""
        new_question = NewQuestion(
            kind=Question.Kind.FORM, message=message, schema=schema
        )
        question = await self._store(context.call_id, new_question)
        try:
            answer = await self._show(question, context.call_id)
        except BaseException:
            self._withdraw(question)
            if (
                self.state.stop is None
            ):  # the call no longer waits, but the turn goes on
                state = Question.State.CANCELLED
                self._publish("parley:question.closed", id=question.pk, state=state)
            raise
        self._publish("parley:question.closed", id=question.pk, state=answer.state)
        if answer.state == Question.State.ACCEPTED:
            return FormAnswer("accept", answer.answer or {})
        is_declined = answer.state == Question.State.DECLINED
        return FormAnswer("decline" if is_declined else "cancel")

    async def _store(self, call_id: str, new_question: NewQuestion) -> Question:
        """Raises StaleEpoch."""
        writing = asyncio.ensure_future(
            self.database.write(
                question_store.ask, self.state.claim, call_id, new_question
            )
        )
        try:
            return await asyncio.shield(writing)
        except asyncio.CancelledError:  # the write continues, but nobody will wait
            writing.add_done_callback(self._withdraw_unseen)
            raise

    def _withdraw_unseen(self, writing: asyncio.Future[Question]) -> None:
        """Close the question that was being stored when its call was given up. If
        storing it failed, there is none."""
        if not writing.cancelled() and writing.exception() is None:
            self._withdraw(writing.result())

    def _withdraw(self, question: Question) -> None:
        self.writes.write_later(question_store.withdraw, question.pk)

    async def _show(self, question: Question, call_id: str) -> Question:
        """Returns it as it was decided."""
        payload = question_payload(question, self.state.find_call(call_id))
        self._publish("parley:approval.requested", question=payload)
        self.clock.stop()
        try:
            return await self._wait_for_answer(question)
        finally:
            self.clock.start()

    def notify_decision(self, question_id: str) -> None:
        """Receive the notification that a person has answered."""
        if waiting := (self._answered or {}).get(question_id):
            waiting.set()

    def _publish(self, event_type: str, **fields: Any) -> None:
        self.events.publish(self.state.builder.extension(event_type, **fields))

    async def _wait_for_answer(self, question: Question) -> Question:
        """Wait for a notification or poll the row, whichever finds the answer first."""
        events = self._answered = {} if self._answered is None else self._answered
        event = events[question.pk] = asyncio.Event()
        try:
            while True:
                with suppress(TimeoutError):
                    await asyncio.wait_for(event.wait(), POLL_INTERVAL)
                event.clear()
                with suppress(*UNREACHABLE):  # the next poll reads it
                    found = await self.database.read(
                        question_store.find_decided_question, question.pk
                    )
                    if found is not None:
                        return found
        finally:
            del events[question.pk]
