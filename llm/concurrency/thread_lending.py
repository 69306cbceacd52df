"""A request that waits for another host lends its thread's place to other requests.

Requests of pages share a few threads. Without this, a few people who test a slow model
would stop the pages of all. The server says how its threads are lent
(`project/server/request_threads.py`); elsewhere nothing is lent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar

from django.utils.translation import gettext as _

from llm.errors import RateLimited

#: Yields whether the place was lent. False: too many wait already.
Lend = Callable[[], AbstractContextManager[bool]]

#: Set by the server, for the requests that begin in a context.
server_lend: ContextVar[Lend | None] = ContextVar("lend", default=None)


@contextmanager
def lend_thread() -> Iterator[bool]:
    """Wait for a host inside. Inside another one it lends nothing more."""
    lend = server_lend.get() or (lambda: nullcontext(True))
    token = server_lend.set(None)
    try:
        with lend() as is_lent:
            yield is_lent
    finally:
        server_lend.reset(token)


@contextmanager
def lend_thread_or_refuse() -> Iterator[None]:
    """For what anybody may ask for. Raises RateLimited where too many wait already."""
    with lend_thread() as is_lent:
        if not is_lent:
            text = _("Too many requests wait for models now; try again in a minute.")
            raise RateLimited(text)
        yield
