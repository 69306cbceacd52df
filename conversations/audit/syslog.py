"""Events to a syslog server: one line of JSON each, without names and texts.

The handler connects with the first event, so that a server that is away delays no
start; what cannot be sent is lost there, and stays in the audit log.
"""

from __future__ import annotations

import logging
from logging.handlers import SysLogHandler

_FORMAT = logging.Formatter("parley audit: %(message)s")
_log = logging.getLogger(__name__)


class AuditSysLogHandler(logging.Handler):
    """`address`: ("udp", host, port) or ("unix", path); empty: nothing is sent."""

    def __init__(self, address: tuple[str, ...]) -> None:
        super().__init__()
        self._address = address
        self._sender: _Sender | None = None

    def emit(self, record: logging.LogRecord) -> None:
        if not self._address:
            return
        try:
            if self._sender is None:
                self._sender = _connect(self._address)
        except OSError as exc:
            _warn(exc)
            return
        self._sender.emit(record)

    def close(self) -> None:
        if self._sender is not None:
            self._sender.close()
        super().close()


class _Sender(SysLogHandler):
    append_nul = False

    def handleError(self, record: logging.LogRecord) -> None:
        _warn(OSError())


def _connect(address: tuple[str, ...]) -> _Sender:
    where = address[1] if address[0] == "unix" else (address[1], int(address[2]))
    sender = _Sender(where, SysLogHandler.LOG_AUTH)
    sender.setFormatter(_FORMAT)
    return sender


def _warn(exc: OSError) -> None:
    _log.warning("AUDIT_SYSLOG: an event was not sent: %s", type(exc).__name__)
