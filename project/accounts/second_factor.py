"""The second factor that the admin asks of staff, where STAFF_SECOND_FACTOR is on."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponseBase
from django.utils.translation import gettext as _

from conversations.access.required_steps import lead_to_second_factor
from conversations.access.session_marks import SECOND_FACTOR

View = Callable[..., HttpResponseBase]


def requires_second_factor(view: View) -> View:
    """A decorator for pages of the admin."""

    @wraps(view)
    def respond(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        if settings.STAFF_SECOND_FACTOR and not request.session.get(SECOND_FACTOR):
            text = _("Set up a second factor first; then the administration opens.")
            return lead_to_second_factor(request, text)
        return view(request, *args, **kwargs)

    return respond
