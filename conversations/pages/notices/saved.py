"""What the next page says of a form that was saved."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest
from django.utils.translation import gettext as _


def say_saved(request: HttpRequest) -> None:
    """Only for pages: scripts show it themselves, and it would appear much later."""
    if "text/html" in request.headers.get("Accept", ""):
        messages.success(request, _("Saved."))
