"""Model of a signed-in session, which its user can see and end."""

from __future__ import annotations

import re
from importlib import import_module
from typing import Any

from django.conf import settings
from django.db import models


class SignedInSession(models.Model):
    """A user's session: its browser, its address and when it was last used."""

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.CASCADE, related_name="signed_in_sessions"
    )
    session_key = models.CharField(max_length=40, unique=True)
    user_agent = models.CharField(max_length=255, blank=True, default="")
    address = models.CharField(max_length=45, blank=True, default="")
    created_at = models.DateTimeField(auto_now_add=True)
    last_used_at = models.DateTimeField(db_index=True)

    class Meta:
        default_permissions = ()
        ordering = ["-last_used_at", "-pk"]

    def __str__(self) -> str:
        return f"{self.browser}, {self.address}"

    @property
    def browser(self) -> str:
        return browser_of(self.user_agent)

    def end(self) -> None:
        session_store()(self.session_key).delete()
        self.delete()


def session_store() -> Any:
    return import_module(settings.SESSION_ENGINE).SessionStore


_BROWSERS = (
    ("Edge", "Edg"),
    ("Opera", "OPR/"),
    ("Samsung Internet", "SamsungBrowser"),
    ("Firefox", "Firefox|FxiOS"),
    ("Chrome", "HeadlessChrome|Chrome/|CriOS"),
    ("Safari", "Safari/"),
)
_SYSTEMS = (
    ("iPhone", "iPhone"),
    ("iPad", "iPad"),
    ("Android", "Android"),
    ("Windows", "Windows"),
    ("macOS", "Mac OS X|Macintosh"),
    ("ChromeOS", "CrOS"),
    ("Linux", "Linux"),
)


def browser_of(user_agent: str) -> str:
    """A readable name, such as `Firefox on Windows`."""
    browser = _first(_BROWSERS, user_agent) or user_agent.partition(" ")[0][:40]
    system = _first(_SYSTEMS, user_agent)
    if not browser:
        return "Unknown browser"
    return f"{browser} on {system}" if system else browser


def _first(names: tuple[tuple[str, str], ...], user_agent: str) -> str:
    found = (name for name, sign in names if re.search(sign, user_agent))
    return next(found, "")
