"""What a server hands to an open socket arrives, in order, and once."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.interfaces import IPushProducer

from project.inbox import Inbox
from project.transport import PromptConnection

_STEPS = st.lists(st.sampled_from(("put", "receive", "give up")), max_size=40)


async def _received(steps: list[str]) -> tuple[list[int], int]:
    """What was received, and how many messages were put."""
    inbox, waiting, number = Inbox(), [], 0
    for step in steps:
        if step == "put":
            inbox.put_nowait(number)
            number += 1
        elif step == "receive":
            waiting.append(asyncio.ensure_future(inbox.receive()))
        elif waiting and not waiting[-1].done():
            waiting.pop().cancel()
        await asyncio.sleep(0)  # as whoever waits begins to
        await asyncio.sleep(0)  # and goes on in a round of its own
    while not inbox.empty():
        waiting.append(asyncio.ensure_future(inbox.receive()))
        await waiting[-1]
    told = [each.result() for each in waiting if each.done()]
    for each in waiting:
        each.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    return told, number


@given(_STEPS)
def test_all_that_is_put_is_received_once_and_in_order(steps: list[str]) -> None:
    told, number = asyncio.run(_received(steps))
    assert told == list(range(number))


async def test_who_is_cancelled_as_a_message_comes_leaves_it_to_the_next() -> None:
    inbox = Inbox()
    first = asyncio.ensure_future(inbox.receive())
    await asyncio.sleep(0)
    inbox.put_nowait(1)
    inbox.put_nowait(2)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    assert first.cancelled()
    assert [await inbox.receive(), await inbox.receive()] == [1, 2]


async def test_who_waits_is_handed_what_another_left() -> None:
    inbox = Inbox()
    first, second = (asyncio.ensure_future(inbox.receive()) for _ in range(2))
    await asyncio.sleep(0)
    inbox.put_nowait(1)
    first.cancel()
    assert await second == 1
    assert inbox.empty()


async def test_it_begins_with_what_had_come_before() -> None:
    inbox = Inbox(["connect", "hello"])
    assert [await inbox.receive(), await inbox.receive()] == ["connect", "hello"]
    assert inbox.empty()


class _Connection:
    def __init__(self) -> None:
        self.calls: list[str] = []

    def pauseProducing(self) -> None:
        self.calls.append("pause")

    def resumeProducing(self) -> None:
        self.calls.append("resume")


async def test_a_connection_is_not_read_while_messages_wait() -> None:
    connection = _Connection()
    inbox = Inbox(source=connection)
    inbox.put_nowait(1)
    assert connection.calls == []
    for number in (2, 3):  # the third was read together with the second
        inbox.put_nowait(number)
    assert connection.calls == ["pause"]
    assert [await inbox.receive() for _ in range(2)] == [1, 2]
    assert connection.calls == ["pause", "resume"]
    assert await inbox.receive() == 3


def test_a_connection_of_twisted_is_a_source() -> None:
    assert IPushProducer.implementedBy(PromptConnection)
