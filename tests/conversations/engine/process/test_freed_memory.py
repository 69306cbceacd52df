"""Memory that large answers have taken goes back to the system."""

from __future__ import annotations

import gc
import platform
import subprocess
import sys
import threading
import weakref

import pytest
from django.test import Client

from conversations.engine.process import malloc_trim
from conversations.engine.process.malloc_trim import (
    MIN_SIZE,
    THREAD_NAME,
    schedule_trim,
)
from conversations.models import Conversation, Item, Turn
from llm.wire.items import user_message
from tests.conversations.scene import a_user


@pytest.fixture
def given_back(monkeypatch):
    """The thread of each call."""
    threads = []
    for timer in timers():  # of large answers of other tests
        timer.cancel()
        timer.join()
    monkeypatch.setattr(malloc_trim, "_timers", [])
    monkeypatch.setattr(malloc_trim, "DELAY", 0.1)
    monkeypatch.setattr(
        malloc_trim, "trim_heap", lambda: threads.append(threading.current_thread())
    )
    return threads


def timers():
    return [thread for thread in threading.enumerate() if thread.name == THREAD_NAME]


def settle():
    for timer in timers():
        timer.join()


@pytest.mark.slow
@pytest.mark.smoke
def test_many_frees_cause_one_trim_in_a_thread(given_back):
    for _ in range(10):
        schedule_trim(MIN_SIZE)
    settle()
    [thread] = given_back
    assert thread is not threading.main_thread()
    schedule_trim(MIN_SIZE)
    settle()
    assert len(given_back) == 2


def test_a_small_answer_causes_no_heap_scan(given_back):
    schedule_trim(MIN_SIZE - 1)
    settle()
    assert given_back == []


def a_turn(text: str) -> Turn:
    conversation = Conversation.objects.create(owner=a_user("ada"))
    turn = Turn.objects.create(conversation=conversation, status="completed")
    Item.of(turn, 0, user_message(text), origin=Item.Origin.INPUT).save()
    return turn


class Node:
    pass


def test_large_cycles_are_collected(given_back):
    one, other = Node(), Node()
    one.other, other.one = other, one
    reference = weakref.ref(one)
    gc.disable()
    try:
        del one, other
        assert reference() is not None
        schedule_trim(MIN_SIZE)
        settle()
        assert reference() is None
    finally:
        gc.enable()


@pytest.mark.django_db
@pytest.mark.parametrize(("size", "times"), [(MIN_SIZE, 1), (10, 0)])
def test_a_large_answer_of_the_api_is_given_back(given_back, size, times):
    turn = a_turn("x" * size)
    client = Client()
    client.force_login(turn.conversation.owner)
    response = client.get(f"/api/turns/{turn.pk}/")
    assert response.status_code == 200
    settle()
    assert len(given_back) == times


#: A block of 30 MB that is freed has glibc put those up to that size into the heap.
_PROGRAM = """
import sys
from project.startup.memory import configure_malloc

def resident():
    status = open("/proc/self/status").read()
    return int(status.partition("VmRSS:")[2].split()[0]) // 1024

if sys.argv[1] == "shared":
    configure_malloc()
block = bytearray(30_000_000)
del block
blocks, pins = [], []
for _ in range(20):
    block = bytearray(4_000_000)
    block[::4096] = b"x" * len(block[::4096])
    blocks.append(block)
    pins.append(bytes(5_000))
del block
held = resident()
del blocks
print(held - resident())
"""


@pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc", reason="the setting is one of glibc's malloc"
)
def test_large_blocks_go_back_whatever_lies_behind_them():
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, "shared"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(done.stdout) >= 60  # MB, of 80
