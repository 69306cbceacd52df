"""The filters that staff have saved for a list of the admin."""

from __future__ import annotations

from typing import Any

from django import template
from django.contrib.admin.views.main import ChangeList

from conversations.models import SavedFilter

register = template.Library()

#: Parameters of a list's address that are no filter: the page, and a popup's mark.
_NO_FILTERS = ["p", "_popup"]


@register.inclusion_tag("admin/_saved_filters.html", takes_context=True)
def saved_filters(context: template.Context, cl: ChangeList) -> dict[str, Any]:
    """One query."""
    request = context["request"]
    list_of = cl.model._meta.label_lower
    rows = SavedFilter.objects.filter(list_of=list_of).shown_to(request.user.pk)
    return {
        "request": request,
        "csrf_token": context.get("csrf_token"),
        "list_of": list_of,
        "query": cl.get_query_string(remove=_NO_FILTERS)[1:],
        "filters": [] if cl.is_popup else rows,
        "is_shown": not cl.is_popup,
        "user": request.user,
    }
