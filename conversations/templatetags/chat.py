"""Template tags and filters of the chat pages."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

from django import template
from django.templatetags.static import static
from django.utils import timezone
from django.utils.formats import date_format, number_format
from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import get_language, gettext
from django.utils.translation import gettext_lazy as _

from conversations.engine.message_consequences import Halt
from conversations.models import Question, ToolCall, Turn
from conversations.models.webhooks.error_texts import translate_delivery_error
from conversations.pages.blocks import MessageBlock
from conversations.pages.markdown import (
    Part,
    highlight_code,
    render_beginning,
    render_linked,
    render_part,
)
from conversations.pages.markdown_limits import RenderingBudget
from conversations.pages.question_views import QuestionCard, card
from conversations.pages.reading.link_marks import CITED, Places
from conversations.pages.script_texts import texts_url
from conversations.requests.model_facts import abilities, describe_model
from conversations.turns.error_texts import in_own_language
from conversations.turns.tool_display import Piece, pieces, pretty, tree
from llm.models import LanguageModel
from llm.pricing.dollars import format_dollars
from llm.providers.demo import PROVIDER as DEMO_PROVIDER

register = template.Library()
register.filter("translate_delivery_error", translate_delivery_error)

DEMO_LABEL = "Demo (no AI)"


#: Names of the URLs of the settings pages, with their titles.
SETTINGS = [
    ("settings", _("General")),
    ("settings-personal", _("Instructions")),
    ("memories", _("Memories")),
    ("prompts", _("Prompts")),
    ("settings-shortcuts", _("Shortcuts")),
    ("usage", _("Usage")),
    ("own-keys", _("Own keys")),
    ("sign-ins", _("Sign-ins")),
    ("connect", _("Connect an app")),
    ("tokens", _("Access tokens")),
    ("webhooks", _("Webhooks")),
    ("account", _("Account")),
]


@register.filter
def as_json(value: Any) -> str:
    """For a data attribute; the template escapes it."""
    return json.dumps(value or {})


@register.filter
def as_list(value: Any) -> str:
    """The same, for a list."""
    return json.dumps(value or [])


@register.filter
def error_text(message: Any) -> str:
    """A turn's error in the reader's language, where Parley wrote it."""
    return in_own_language(message) if isinstance(message, str) else ""


@register.simple_tag
def settings_sections() -> list[tuple[str, Any]]:
    return SETTINGS


@register.filter
def markdown(text: str) -> SafeString:
    """The text as HTML; beyond the first part of a long text as plain text."""
    return _with_plain_rest(render_part(text), text)


@register.simple_tag
def shared_markdown(text: str, budget: RenderingBudget) -> SafeString:
    """The text as HTML on a page without further parts; what is beyond the page's
    budget as plain text."""
    return _render_within(text, budget, None)


@register.simple_tag
def shared_said(block: MessageBlock, turn: Turn, budget: RenderingBudget) -> SafeString:
    """The same of a message, with links of its citations and footnotes."""
    places = Places(turn.pk, block.key, len(block.citations), has_artifacts=False)
    return _render_within(block.marked_text, budget, places)


def _render_within(
    text: str, budget: RenderingBudget, places: Places | None
) -> SafeString:
    if budget.left <= 0:
        return _plain(text)
    part = render_beginning(text, budget.left, places)
    budget.left -= len(text) if part.next_start is None else part.next_start
    return _with_plain_rest(part, text)


def _with_plain_rest(part: Part, text: str) -> SafeString:
    if part.next_start is None:
        return part.html
    return part.html + _plain(text[part.next_start :])


def _plain(text: str) -> SafeString:
    return format_html('<p class="plain" dir="auto">{}</p>', CITED.sub("", text))


@register.filter
def markdown_part(text: str) -> Part:
    return render_part(text)


@register.simple_tag
def said_part(block: MessageBlock, turn: Turn | None) -> Part:
    """A message's first part, with links of citations, footnotes and artifacts."""
    if turn is None:
        return render_part(block.text)
    places = Places(turn.pk, block.key, len(block.citations))
    return render_part(block.marked_text, places=places)


@register.simple_tag
def said_whole(block: MessageBlock, turn: Turn) -> SafeString:
    """A message with all its parts, for paper."""
    places = Places(turn.pk, block.key, len(block.citations))
    return render_linked(block.marked_text, places)


@register.filter
def json_colours(text: str) -> SafeString:
    return highlight_code(text, "json" if text.startswith(("{", "[")) else "")


@register.filter
def coloured(code: str, language: str) -> SafeString:
    return highlight_code(code, language)


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
    words = gettext(
        "The model does not support all options; changed or left out: %(options)s."
    )
    return words % {"options": ", ".join(options)}


@register.filter
def describe_halt(halt: Halt) -> str:
    """Sentences: why a message was halted, and which results wait."""
    if halt.reason == Turn.HaltedBy.MAX_COST:
        words = gettext("This message reached its cost limit.")
    else:
        words = gettext("This message reached its limit of turns.")
    if halt.results:
        unseen = gettext("The model has not seen the result of %(results)s.")
        words += " " + unseen % {"results": ", ".join(halt.results)}
    return words + " " + gettext("Continue?")


@register.filter
def describe_decision(question: Question) -> str:
    """A sentence about the state of a question."""
    match question.state:
        case Question.State.OPEN if question.group:
            words = gettext("Waiting for the group %(group)s to decide.")
            return words % {"group": question.group}
        case Question.State.OPEN if question.kind == Question.Kind.SIGN_IN:
            return gettext("Waiting for the author of the message to sign in.")
        case Question.State.OPEN:
            return gettext("Waiting for its owner to decide.")
        case Question.State.ACCEPTED if question.always:
            return _describe_decider(question, *_APPROVED_ALWAYS)
        case Question.State.ACCEPTED if question.is_edited:
            return _describe_decider(question, *_APPROVED_CHANGED)
        case Question.State.ACCEPTED if question.kind == Question.Kind.APPROVAL:
            return _describe_decider(question, *_APPROVED)
        case Question.State.ACCEPTED if question.kind == Question.Kind.SIGN_IN:
            return _describe_decider(question, *_SIGNED_IN)
        case Question.State.ACCEPTED:
            return _describe_decider(question, *_ANSWERED)
        case Question.State.DECLINED:
            return _describe_decider(question, *_DECLINED)
        case Question.State.EXPIRED:
            return gettext("The question was not answered in time.")
        case Question.State.CANCELLED if question.decided_by:
            return _describe_decider(question, *_DISMISSED)
    return gettext("No longer needed.")


#: With and without the name of the person.
_APPROVED = _("Approved by %(person)s"), _("Approved")
_APPROVED_CHANGED = (
    _("Approved by %(person)s with other arguments"),
    _("Approved with other arguments"),
)
_APPROVED_ALWAYS = (
    _("Approved by %(person)s, always in this chat"),
    _("Approved, always in this chat"),
)
_SIGNED_IN = _("%(person)s has signed in"), _("Signed in")
_ANSWERED = _("Answered by %(person)s"), _("Answered")
_DECLINED = _("Declined by %(person)s"), _("Declined")
_DISMISSED = _("Dismissed by %(person)s"), _("Dismissed")


def _describe_decider(question: Question, by_somebody: Any, otherwise: Any) -> str:
    person = question.decided_by
    words = str(by_somebody) % {"person": person} if person else str(otherwise)
    return f"{words}: {question.note}" if question.note else f"{words}."


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
    if not is_demo(model):
        return str(model)
    is_usual = str(model) in (DEMO_PROVIDER.default_model, DEMO_LABEL)
    return DEMO_LABEL if is_usual else f"{DEMO_LABEL}: {model}"


@register.filter
def model_facts(model: LanguageModel) -> str:
    return describe_model(model)


@register.filter
def model_abilities(model: LanguageModel) -> str:
    """JSON for static/js/people/model-picker.js."""
    return json.dumps([[each.icon, each.words] for each in abilities(model)])


@register.filter
def is_demo(model: LanguageModel | None) -> bool:
    return model is not None and model.provider.kind == "demo"


@register.filter
def duration(seconds: float | None) -> str:
    """`40 ms`, `1.4 s`, `12 s` or `3 min 5 s`, as in static/js/elapsed.js."""
    if not isinstance(seconds, int | float):
        return ""
    if seconds < 0.95:
        return gettext("%(number)s ms") % {"number": round(seconds * 1000)}
    if seconds < 10:
        return gettext("%(number)s s") % {"number": number_format(seconds, 1)}
    minutes, rest = divmod(round(seconds), 60)
    if not minutes:
        return gettext("%(number)s s") % {"number": rest}
    words = gettext("%(minutes)s min %(seconds)s s")
    return words % {"minutes": minutes, "seconds": rest}


@register.filter
def as_time(moment: datetime) -> SafeString:
    """A time in a text; scripts show it in the reader's zone."""
    shown = date_format(timezone.localtime(moment), "j F Y, H:i")
    return format_html('<time datetime="{}">{}</time>', moment.isoformat(), shown)


@register.filter
def dollars(amount: Decimal) -> str:
    return format_dollars(amount)


@register.filter
def modules(names: str) -> list[str]:
    """URLs of the page's own JavaScript modules."""
    return [static(f"js/{name}.js") for name in names.split()]


@register.simple_tag
def script_texts() -> SafeString:
    """Loads the texts of scripts in the page's language, before the page's modules."""
    url = texts_url(get_language())
    return format_html('<script defer src="{}"></script>', url) if url else SafeString()


@register.simple_tag
def icon(name: str) -> SafeString:
    """An icon of templates/_icons.html, hidden from screen readers: each icon stands
    beside a text label."""
    return format_html(
        '<svg class="icon" aria-hidden="true"><use href="#icon-{}"></use></svg>', name
    )
