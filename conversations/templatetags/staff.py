"""Template tags of the admin pages."""

from __future__ import annotations

from typing import Any

from django import template
from django.forms import BoundField
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from conversations.engine.evaluations.check_reasons import translate_check_reason
from conversations.staff.engine_status import format_duration
from llm.error_texts.for_staff import describe_reason

register = template.Library()
#: Of an error that is stored as "<code>: <text for people>".
register.filter("describe_reason", describe_reason)
register.filter("translate_check_reason", translate_check_reason)


@register.inclusion_tag("admin/conversations/_table_head.html")
def table_head(caption: str, *columns: str, acts: bool = False) -> dict[str, Any]:
    """`acts`: whether the rows have buttons in a last column."""
    return {
        "caption": caption,
        "columns": [*columns, _("Act")] if acts else columns,
    }


@register.filter
def labelled(field: BoundField) -> SafeString:
    """The field of a table's cell: its column's heading is no label of it."""
    return field.as_widget(attrs={"aria-label": str(field.label)})


@register.filter
def milliseconds(value: float) -> str:
    """A duration; below a second in milliseconds."""
    return seconds(value) if value >= 1 else f"{value * 1000:.0f}\N{NO-BREAK SPACE}ms"


@register.filter
def seconds(value: float | None, digits: int | None = None) -> str:
    """A duration; a dash if unknown. Without `digits` in the most readable unit."""
    if value is None:
        return "–"
    if digits is not None:
        return f"{value:.{digits}f} s"
    return format_duration(value, space="\N{NO-BREAK SPACE}")
