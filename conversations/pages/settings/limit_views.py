"""What is left of a user's limits of use: the composer's line, and the usage page's."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET

from conversations.access.limits.admission import LimitLeft, find_limits_left

MOST_SHOWN = 2  # lines below the message box; the usage page has all


@login_required
@never_cache
@require_GET
def limits_fragment(request: HttpRequest) -> HttpResponse:
    """The lines as a fragment, which replaces those on the page."""
    context = {"limits_left": tightest_limits(request.user)}
    return render(request, "conversations/_limits.html", context)


def tightest_limits(user: Any) -> list[LimitLeft]:
    """Those of which the least is left, the tightest first."""
    found = sorted(find_limits_left(user.pk), key=lambda each: -each.percent)
    return found[:MOST_SHOWN]
