from __future__ import annotations

from django import template
from django.templatetags.static import static
from django.utils.html import format_html
from django.utils.safestring import SafeString

from conversations.markdown import coloured, render
from llm.models import LanguageModel

register = template.Library()

DEMO_LABEL = "Demo (no AI)"


@register.filter
def markdown(text: str) -> SafeString:
    return render(text)


@register.filter
def json_colours(text: str) -> SafeString:
    return coloured(text, "json" if text.startswith(("{", "[")) else "")


@register.filter
def model_label(model: LanguageModel | None) -> str:
    """What people see; nobody shall take the demo for an AI."""
    if model is None:
        return ""
    return DEMO_LABEL if is_demo(model) else str(model)


@register.filter
def is_demo(model: LanguageModel | None) -> bool:
    return model is not None and model.provider.kind == "demo"


@register.filter
def duration(seconds: float | None) -> str:
    """`40 ms`, `1.4 s`, `12 s`, `3 min 5 s`; static/js/elapsed.js says the same."""
    if not isinstance(seconds, int | float):
        return ""
    if seconds < 0.95:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 10:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


@register.filter
def modules(names: str) -> list[str]:
    """Where the browser finds the page's own JavaScript modules."""
    return [static(f"js/{name}.js") for name in names.split()]


@register.simple_tag
def icon(name: str) -> SafeString:
    """A drawing of templates/_icons.html; what it means is said beside it in words."""
    return format_html(
        '<svg class="icon" aria-hidden="true"><use href="#icon-{}"></use></svg>', name
    )
