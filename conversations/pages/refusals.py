"""Pages that refuse a request for now: above a rate limit, or under maintenance."""

from __future__ import annotations

import math

from django.http import HttpResponse

from conversations.access.errors import TooFast


def mark_refused(page: HttpResponse, refusal: TooFast) -> HttpResponse:
    """Give the page the refusal's status, 429 or 503, and `Retry-After`."""
    page.status_code = refusal.status
    page["Retry-After"] = str(math.ceil(refusal.retry_after or 1))
    return page
