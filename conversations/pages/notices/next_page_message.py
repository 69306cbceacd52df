"""What the next page says of a form that was saved, or of what was deleted or ended."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest
from django.utils.translation import gettext as _


def say_saved(request: HttpRequest) -> None:
    say_done(request, _("Saved."))


def say_done(request: HttpRequest, text: str) -> None:
    """Only for pages: scripts show it themselves, and it would appear much later."""
    if "text/html" in request.headers.get("Accept", ""):
        messages.success(request, text)
