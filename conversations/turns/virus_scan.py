"""Scan files that people send with ClamAV's daemon, where CLAMD_ADDRESS names one.

Source: https://docs.clamav.net/manual/Usage/ReportFormat.html and clamd(8), INSTREAM.
"""

from __future__ import annotations

import logging
import socket
import struct
from typing import Literal

from django.conf import settings

Verdict = Literal["clean", "infected", "not scanned"]

TIMEOUT = 30  # seconds without an answer
_PIECE = 65_536  # bytes
_LENGTH = struct.Struct("!I")
_MAX_REPLY = 4096  # bytes

logger = logging.getLogger(__name__)


def scan(data: bytes) -> Verdict:
    """What the daemon finds; "clean" without one. Whatever it does not call clean or
    infected was not scanned."""
    if not settings.CLAMD_ADDRESS:
        return "clean"
    try:
        reply = _ask(data)
    except OSError as exc:
        logger.warning("a file could not be scanned: %s", type(exc).__name__)
        return "not scanned"
    if reply == "stream: OK":
        return "clean"
    if reply.endswith(" FOUND"):
        logger.warning("a file was refused: %.200r", reply)
        return "infected"
    logger.warning("a file could not be scanned: %.200r", reply)
    return "not scanned"


def _ask(data: bytes) -> str:
    with _connect() as connection:
        connection.sendall(b"zINSTREAM\0")
        for start in range(0, len(data), _PIECE):
            piece = data[start : start + _PIECE]
            connection.sendall(_LENGTH.pack(len(piece)) + piece)
        connection.sendall(_LENGTH.pack(0))
        reply = b""
        while not reply.endswith(b"\0") and len(reply) < _MAX_REPLY:
            if not (more := connection.recv(_MAX_REPLY)):
                break
            reply += more
    return reply.rstrip(b"\0").decode(errors="replace")


def _connect() -> socket.socket:
    address: str = settings.CLAMD_ADDRESS
    if address.startswith("/"):
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(TIMEOUT)
        connection.connect(address)
        return connection
    host, _, port = address.rpartition(":")
    return socket.create_connection((host.strip("[]"), int(port)), TIMEOUT)
