"""Signatures of webhooks: an id, a time and a body in, a signature out. Pure.

Source: https://github.com/standard-webhooks/standard-webhooks
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets

PREFIX = "whsec_"
SECRET_SIZE = 32  # bytes; the specification asks for 24 to 64


def generate_secret() -> str:
    return PREFIX + base64.b64encode(secrets.token_bytes(SECRET_SIZE)).decode()


def sign(secret: str, event_id: str, timestamp: int, body: bytes) -> str:
    """One signature of `webhook-signature`, a header that joins several by spaces."""
    key = base64.b64decode(secret.removeprefix(PREFIX))
    signed = f"{event_id}.{timestamp}.".encode() + body
    digest = hmac.new(key, signed, hashlib.sha256).digest()
    return f"v1,{base64.b64encode(digest).decode()}"
