"""Delivers what the outbox holds, several at a time and few to one endpoint.

So a receiver that is slow holds up no other. A delivery whose process died is sent
again by another one when its lease has ended: a receiver gets each at least once, with
the same id each time.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter

from django.core.mail import EmailMessage

from conversations.engine.database.executor import Database
from conversations.engine.process.engine_tasks import EngineTasks
from conversations.engine.webhooks import delivery_store
from conversations.engine.webhooks.delivery_store import DeliveryOutcome
from conversations.engine.webhooks.mail import send_mail, write_mail
from conversations.engine.webhooks.sending import send
from conversations.models.webhooks.delivery import Delivery
from conversations.models.webhooks.error_texts import FAULT
from tools.execute import format_trace

logger = logging.getLogger(__name__)

DELIVERY_INTERVAL = 2.0  # seconds between two looks
MOST_AT_ONCE = 16
MOST_TO_ENDPOINT = 2  # of these, and as many mails


class Deliveries:
    def __init__(self, tasks: EngineTasks, database: Database) -> None:
        self._tasks = tasks
        self._database = database
        self._in_flight: dict[int, int | None] = {}  # endpoints, by delivery
        self._is_looking = False

    async def run_due(self) -> None:
        """Start what is due, as far as there is room."""
        if self._is_looking or self._tasks.draining:
            return
        self._is_looking = True
        try:
            while (room := MOST_AT_ONCE - len(self._in_flight)) > 0:
                if not await self._start_due(room):
                    return
        finally:
            self._is_looking = False

    async def _start_due(self, room: int) -> bool:
        """Whether anything was started."""
        count = Counter(self._in_flight.values())
        busy = [e for e, n in count.items() if n >= MOST_TO_ENDPOINT]
        find_due = delivery_store.find_due
        found = await self._database.read(
            find_due, room, without=[*self._in_flight], busy=busy
        )
        is_started = False
        for pk, endpoint_id in found:
            if count[endpoint_id] >= MOST_TO_ENDPOINT:
                continue
            count[endpoint_id] += 1
            self._in_flight[pk] = endpoint_id
            self._tasks.create(self._deliver(pk), name="delivery")
            is_started = True
        return is_started

    async def _deliver(self, pk: int) -> None:
        try:
            delivery = await self._database.write(delivery_store.claim, pk)
            if delivery is not None:
                outcome = await self._attempt(delivery)
                await self._database.write(delivery_store.record, delivery, outcome)
        except Exception as exc:
            # Its lease ends, and it is tried again.
            logger.error("delivery %s was not recorded: %s", pk, format_trace(exc))
            return
        finally:
            del self._in_flight[pk]
        await self.run_due()

    async def _attempt(self, delivery: Delivery) -> DeliveryOutcome:
        try:
            if delivery.endpoint is not None:
                return await send(delivery, delivery.endpoint)
            mail = await self._database.read(write_mail, delivery)
            if mail is None:
                return DeliveryOutcome(is_skipped=True)
            return await self._send_mail(delivery, mail)
        except asyncio.CancelledError:  # the process drains
            await self._database.write(delivery_store.give_back, delivery)
            raise
        except Exception as exc:
            logger.error("delivery %s failed: %s", delivery.pk, format_trace(exc))
            return DeliveryOutcome(error=FAULT)

    async def _send_mail(
        self, delivery: Delivery, mail: EmailMessage
    ) -> DeliveryOutcome:
        """A drain waits for the mail's end, as its thread cannot be stopped: another
        process would send it a second time."""
        sending = asyncio.ensure_future(asyncio.to_thread(send_mail, mail))
        try:
            return await asyncio.shield(sending)
        except asyncio.CancelledError:
            outcome = await sending
            await self._database.write(delivery_store.record, delivery, outcome)
            raise
