from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django import template
from django.templatetags.static import static
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe

from conversations.engine.message_bounds import Halt
from conversations.models import Question, ToolCall, Turn
from conversations.pages.markdown import Part, highlight_code, render_part
from conversations.pages.question_views import QuestionCard, card
from conversations.turns.tool_display import Piece, pieces, pretty, tree
from llm.models import LanguageModel

register = template.Library()

DEMO_LABEL = "Demo (no AI)"


@register.filter
def markdown(text: str) -> SafeString:
    """The text as HTML; beyond the first part of a long text as plain text."""
    part = render_part(text)
    if part.next_start is None:
        return part.html
    rest = text[part.next_start :]
    return part.html + format_html('<p class="plain">{}</p>', rest)


@register.filter
def markdown_part(text: str) -> Part:
    return render_part(text)


@register.filter
def json_colours(text: str) -> SafeString:
    return highlight_code(text, "json" if text.startswith(("{", "[")) else "")


@register.filter
def json_tree(value: Any) -> SafeString:
    return mark_safe(tree(value))  # `tree` escapes names and values


@register.filter
def as_pieces(value: Any) -> list[Piece]:
    """The display pieces of a JSON value."""
    return pieces(pretty(value))


@register.filter
def describe_degraded(options: Sequence[str]) -> str:
    """A sentence about the options that were changed or left out."""
    named = ", ".join(options)
    return f"The model does not take all that was asked; changed or left out: {named}."


@register.filter
def describe_halt(halt: Halt) -> str:
    """Sentences: why a message was halted, and which results wait."""
    if halt.reason == Turn.HaltedBy.MAX_COST:
        words = "This message reached its cost limit."
    else:
        words = "This message reached its limit of turns."
    if halt.results:
        words += f" The model has not seen the result of {', '.join(halt.results)}."
    return f"{words} Continue?"


@register.filter
def describe_decision(question: Question) -> str:
    """A sentence about the state of a question."""
    decider = f" by {question.decided_by}" if question.decided_by else ""
    note = f": {question.note}" if question.note else "."
    match question.state:
        case Question.State.OPEN:
            decided_by = (
                f"the group {question.group}" if question.group else "its owner"
            )
            return f"Waiting for {decided_by} to decide."
        case Question.State.ACCEPTED:
            is_approval = question.kind == Question.Kind.APPROVAL
            return f"{'Approved' if is_approval else 'Answered'}{decider}{note}"
        case Question.State.DECLINED:
            return f"Declined{decider}{note}"
        case Question.State.EXPIRED:
            return "Nobody decided in time."
        case Question.State.CANCELLED if question.decided_by:
            return f"Dismissed{decider}{note}"
    return "No longer needed."


@register.filter
def running_for(call: ToolCall) -> float:
    """Seconds since a call began."""
    since = call.started_at or call.created_at
    return (timezone.now() - since).total_seconds()


@register.simple_tag
def question_card(question: Question, user: Any) -> QuestionCard:
    return card(question, user)


@register.filter
def model_label(model: LanguageModel | None) -> str:
    """The model's name for users; the demo's label says that it is not an AI."""
    if model is None:
        return ""
    return DEMO_LABEL if is_demo(model) else str(model)


@register.filter
def is_demo(model: LanguageModel | None) -> bool:
    return model is not None and model.provider.kind == "demo"


@register.filter
def duration(seconds: float | None) -> str:
    """`40 ms`, `1.4 s`, `12 s` or `3 min 5 s`, as in static/js/elapsed.js."""
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
    """URLs of the page's own JavaScript modules."""
    return [static(f"js/{name}.js") for name in names.split()]


@register.simple_tag
def icon(name: str) -> SafeString:
    """An icon of templates/_icons.html, hidden from screen readers: each icon stands
    beside a text label."""
    return format_html(
        '<svg class="icon" aria-hidden="true"><use href="#icon-{}"></use></svg>', name
    )
