"""What the next page says of a form that was saved."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest
from django.utils.translation import gettext as _


def say_saved(request: HttpRequest) -> None:
    """Scripts say it themselves, and would leave it to a page that comes much later."""
    if "text/html" in request.headers.get("Accept", ""):
        messages.success(request, _("Saved."))
