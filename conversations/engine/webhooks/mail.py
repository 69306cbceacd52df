"""E-mails of the outbox: a long answer is ready, an endpoint was switched off.

They hold a link and a title, and no words of a chat. Synchronous.
"""

from __future__ import annotations

from smtplib import SMTPException
from typing import Any

from django.conf import settings
from django.core.mail import EmailMessage
from django.urls import reverse
from django.utils import translation
from django.utils.translation import gettext as _

from conversations.access.webhooks.outbox import MAIL_OF_TURN
from conversations.engine.webhooks.delivery_store import DeliveryOutcome
from conversations.models import Conversation, LastSeen, TitleSource, Turn
from conversations.models.user_settings import UserSettings
from conversations.models.webhooks.delivery import Delivery
from conversations.models.webhooks.error_texts import MAIL_REFUSED

MAX_TITLE = 100  # characters


def write_mail(delivery: Delivery) -> EmailMessage | None:
    """None if it is not needed any more, or cannot be sent."""
    user: Any = delivery.user
    if not (settings.SENDS_MAIL and user and user.is_active and user.email):
        return None
    language = UserSettings.objects.for_user(user.pk).language
    with translation.override(language or settings.LANGUAGE_CODE):
        written = _write(delivery, user)
    if written is None:
        return None
    subject, lines = written
    body = "\n\n".join(lines) + "\n"
    return EmailMessage(f"Parley: {subject}", body, to=[user.email])


def send_mail(mail: EmailMessage) -> DeliveryOutcome:
    """Without the database."""
    try:
        mail.send()
    except (SMTPException, OSError) as exc:
        # Its text may have the address.
        return DeliveryOutcome(error=MAIL_REFUSED % {"error": type(exc).__name__})
    return DeliveryOutcome()


def _write(delivery: Delivery, user: Any) -> tuple[str, list[str]] | None:
    """Subject and paragraphs; None if it is not needed any more."""
    if delivery.type == MAIL_OF_TURN:
        return _write_of_turn(delivery, user)
    text = _("Your webhook endpoint “%(name)s” was switched off.")
    line = text % {"name": _one_line(delivery.data["name"])}
    links = _link("webhooks")
    return line, [line, _("Its page says why."), *links]


def _write_of_turn(delivery: Delivery, user: Any) -> tuple[str, list[str]] | None:
    found = Conversation.objects.find_visible(user, delivery.conversation_id or "")
    turn = Turn.objects.filter(pk=delivery.data["response"], deleted_at=None).first()
    if found is None or turn is None or turn.finished_at is None:
        return None
    if LastSeen.objects.filter(
        user=user, conversation=found, at__gte=turn.finished_at
    ).exists():
        return None
    line = _("The answer in your chat is ready.")
    if turn.status == Turn.Status.FAILED:
        line = _("The answer in your chat failed.")
    if found.title_source != TitleSource.WORDS:  # those are of the first message
        line = f"{line} ({_one_line(found.title)})"
    why = _("You get this mail because your settings ask for it.")
    return line, [line, *_link("conversation", found.pk), why]


def _one_line(text: str) -> str:
    """No line break gets into a mail's headers."""
    return " ".join(text.split())[:MAX_TITLE]


def _link(name: str, *args: Any) -> list[str]:
    """Empty where the server does not know its own address."""
    path = reverse(name, args=args)
    return [settings.PUBLIC_URL.rstrip("/") + path] if settings.PUBLIC_URL else []
