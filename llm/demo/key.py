"""The key our own server shows to its demo provider: nobody has to store or type it."""

from __future__ import annotations

import hashlib
import hmac

from django.conf import settings


def demo_key() -> str:
    """The same as long as SECRET_KEY is; tells nothing about it."""
    digest = hmac.new(settings.SECRET_KEY.encode(), b"parley demo", hashlib.sha256)
    return f"demo-{digest.hexdigest()[:40]}"
