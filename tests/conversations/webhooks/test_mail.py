"""An e-mail to a person whose answer took long, who was not looking."""

from __future__ import annotations

from datetime import timedelta

import pytest
from asgiref.sync import sync_to_async
from django.core import mail
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from conversations.access.webhooks import outbox, recipients
from conversations.models import Conversation, Delivery, LastSeen, Turn
from conversations.models.user_settings import UserSettings
from llm.wire.items import user_message
from tests.conversations.scene import a_user

from .conftest import make_due

pytestmark = pytest.mark.django_db(transaction=True)

WORDS = "zanzibar"


@pytest.fixture(autouse=True)
def mail_server(settings):
    settings.SENDS_MAIL = True
    settings.PUBLIC_URL = "https://chat.example.org"


@pytest.fixture
def alice(conversation):
    UserSettings.objects.change(conversation.owner_id, email_after_minutes=5)
    return conversation.owner


def end(
    conversation: Conversation,
    minutes: float = 6,
    status: str = "completed",
    *,
    title: str = "Of islands",
    source: str = "model",
) -> Turn:
    """A turn that ends now, and began so many minutes ago."""
    turn: Turn = conversation.open_turn([user_message(WORDS)]).turn
    Conversation.objects.update(title=title, title_source=source)
    now = timezone.now()
    began = now - timedelta(minutes=minutes)
    Turn.objects.filter(pk=turn.pk).update(
        created_at=began, finished_at=now, status=status
    )
    outbox.note_end(turn.pk, status)
    make_due()
    return turn


async def test_a_long_answer_is_mailed_with_a_link_and_no_word_of_it(
    conversation, alice, job
):
    await sync_to_async(end)(conversation)
    await job.run()
    (sent,) = mail.outbox
    assert sent.to == ["alice@example.org"]
    assert "Of islands" in sent.subject
    assert f"https://chat.example.org/chat/{conversation.pk}/" in sent.body
    assert WORDS not in sent.subject + sent.body
    assert (await Delivery.objects.aget()).state == "delivered"


async def test_a_title_made_of_the_first_message_is_not_mailed(
    conversation, alice, job
):
    await sync_to_async(end)(conversation, title=WORDS, source="words")
    await job.run()
    (sent,) = mail.outbox
    assert WORDS not in sent.subject + sent.body


async def test_a_title_of_several_lines_makes_no_header(conversation, alice, job):
    title = "Islands\r\nBcc: eve@example.org"
    await sync_to_async(end)(conversation, title=title)
    await job.run()
    (sent,) = mail.outbox
    assert "\n" not in sent.subject
    assert sent.message()["bcc"] is None


@pytest.mark.parametrize(
    ("minutes", "status", "count"),
    [
        (6, "completed", 1),
        (6, "failed", 1),
        (6, "incomplete", 1),
        (6, "cancelled", 0),
        (4, "completed", 0),
    ],
)
def test_short_and_stopped_answers_are_not_mailed(
    conversation, alice, minutes, status, count
):
    end(conversation, minutes, status)
    assert Delivery.objects.count() == count


def test_who_did_not_ask_gets_no_mail(conversation):
    UserSettings.objects.change(a_user("bob").pk, email_after_minutes=1)
    end(conversation)
    assert not Delivery.objects.exists()


def test_without_a_mail_server_nothing_is_queued(conversation, alice, settings):
    settings.SENDS_MAIL = False
    end(conversation)
    assert not Delivery.objects.exists()


def test_temporary_chats_are_not_mailed(conversation, alice):
    Conversation.objects.update(is_temporary=True)
    end(conversation)
    assert not Delivery.objects.exists()


async def test_who_has_looked_meanwhile_gets_no_mail(conversation, alice, job):
    await sync_to_async(end)(conversation)
    await sync_to_async(LastSeen.objects.note)(alice, conversation)
    await job.run()
    assert not mail.outbox
    assert (await Delivery.objects.aget()).state == "skipped"


async def test_who_looked_only_before_the_end_gets_a_mail(conversation, alice, job):
    await sync_to_async(LastSeen.objects.note)(alice, conversation)
    await sync_to_async(end)(conversation)
    await job.run()
    assert len(mail.outbox) == 1


async def test_of_a_deleted_chat_no_mail_is_sent(conversation, alice, job):
    await sync_to_async(end)(conversation)
    await sync_to_async(conversation.delete_softly)()
    await job.run()
    assert not mail.outbox


async def test_a_closed_account_gets_no_mail(conversation, alice, job):
    await sync_to_async(end)(conversation)
    alice.is_active = False
    await alice.asave()
    await job.run()
    assert not mail.outbox


async def test_a_mail_that_is_refused_is_tried_again(
    conversation, alice, job, settings
):
    backend = settings.EMAIL_BACKEND
    settings.EMAIL_BACKEND = f"{__name__}.RefusingBackend"
    await sync_to_async(end)(conversation)
    await job.run()
    row = await Delivery.objects.aget()
    assert row.state == "pending"
    assert "alice" not in row.last_error
    settings.EMAIL_BACKEND = backend
    await sync_to_async(make_due)()
    await job.run()
    assert len(mail.outbox) == 1


class RefusingBackend:
    def __init__(self, **_) -> None:
        pass

    def send_messages(self, messages) -> None:
        raise ConnectionRefusedError("alice@example.org cannot be reached")


def test_where_nobody_asks_for_mails_a_turn_costs_no_query(conversation):
    turn = conversation.open_turn([user_message(WORDS)]).turn
    recipients.refresh()
    with CaptureQueriesContext(connection) as captured:
        outbox.note_end(turn.pk, "completed")
    assert not captured.captured_queries
