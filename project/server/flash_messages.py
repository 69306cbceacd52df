"""Messages for the next page, in a cookie whose name has the prefix of all cookies."""

from __future__ import annotations

from django.conf import settings
from django.contrib.messages.storage.cookie import CookieStorage
from django.contrib.messages.storage.fallback import FallbackStorage
from django.contrib.messages.storage.session import SessionStorage


class PrefixedCookieStorage(CookieStorage):
    cookie_name = settings.MESSAGE_COOKIE_NAME


class MessageStorage(FallbackStorage):
    """What is too long for a cookie is stored in the session, as in Django."""

    storage_classes = (PrefixedCookieStorage, SessionStorage)
