"""Changes of waiting messages, from any endpoint: rows first, then the running turn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from django.db import transaction

from conversations import engine
from conversations.access import admission
from conversations.access.errors import Forbidden
from conversations.access.limits.admission import admit_change
from conversations.access.webhooks.limit_events import notes_refusals
from conversations.input.checks import InputError
from conversations.models import Item, OpenedTurn, Turn
from conversations.models.access_token import AccessToken
from conversations.requests.errors import (
    AlreadySentConflict,
    CannotSteerConflict,
    InvalidInput,
    QueueChangedConflict,
)
from conversations.turns import waiting_messages
from conversations.turns.attachments import (
    UnknownFile,
    UploadRefused,
    check_inline_quota,
    resolve_file_parts,
)
from conversations.turns.history import estimate_tokens
from conversations.turns.waiting_messages import When
from llm.wire.items import Item as ItemPayload


def notify_running_turn(opened: OpenedTurn) -> None:
    """After the commit, tell the running turns of a message that steers or interrupts
    them."""
    turn = opened.turn
    if turn.steering:
        _after_commit(engine.notify_steering, turn.conversation_id)
    for interrupted in opened.interrupted:
        _after_commit(engine.cancel, interrupted)


@notes_refusals
def change_message(
    turn: Turn,
    items: Sequence[ItemPayload],
    user: Any,
    token: AccessToken | None = None,
) -> None:
    """Replace what a waiting message says. Raises APIException, TooFast, Forbidden."""
    if token and token.is_limited and turn.access_token_id != token.pk:
        # The message would be answered under the limits of another token, or without
        # any.
        raise Forbidden(
            "A token with limits can change only messages that were sent with it."
        )
    if any(item.get("role") != "user" for item in items):
        problem = "expected messages with the role 'user'."
        raise InvalidInput(InputError("input", problem))
    _check_tokens_available(user, token, items)
    conversation = turn.conversation
    try:
        with transaction.atomic():
            check_inline_quota(turn.actor_id, items)
            before = _read_payloads(turn)
            waiting_messages.change(turn, resolve_file_parts(conversation, items))
            admit_change(user.pk, token, before, _read_payloads(turn))
    except UnknownFile as exc:
        raise InvalidInput(
            InputError(exc.param, str(exc), code="unknown_file")
        ) from exc
    except UploadRefused as exc:
        raise InvalidInput(InputError("input", str(exc), code=exc.code)) from exc
    except waiting_messages.CannotSteer as exc:
        raise CannotSteerConflict from exc
    except waiting_messages.AlreadySent as exc:
        raise AlreadySentConflict from exc
    _after_commit(engine.announce_queue, turn.conversation_id)


def _check_tokens_available(
    user: Any, token: AccessToken | None, items: Sequence[ItemPayload]
) -> None:
    amount = estimate_tokens("", items)
    if token is None:
        admission.check_user_tokens_available(user, amount)
    elif token.tokens_per_minute:
        admission.check_tokens_available(token, amount)


def _read_payloads(turn: Turn) -> list[ItemPayload]:
    rows = Item.objects.filter(turn=turn).order_by("position")
    return list(rows.values_list("payload", flat=True))


def send_when(turn: Turn, when: When) -> None:
    """Let a waiting message wait, steer or interrupt. Raises APIException."""
    try:
        match when:
            case "queue":
                waiting_messages.wait(turn)
            case "steer":
                waiting_messages.steer(turn)
                _after_commit(engine.notify_steering, turn.conversation_id)
            case "interrupt":
                for interrupted in waiting_messages.interrupt(turn):
                    _after_commit(engine.cancel, interrupted)
    except waiting_messages.CannotSteer as exc:
        raise CannotSteerConflict from exc
    except waiting_messages.AlreadySent as exc:
        raise AlreadySentConflict from exc
    _after_commit(engine.announce_queue, turn.conversation_id)


def remove_message(turn: Turn) -> None:
    """Raises AlreadySentConflict."""
    try:
        waiting_messages.remove(turn)
    except waiting_messages.AlreadySent as exc:
        raise AlreadySentConflict from exc
    _after_commit(engine.announce_queue, turn.conversation_id)


def stop_turn(turn: Turn) -> None:
    """Stop the turn in whatever phase. Raises AlreadySentConflict for a message that a
    running turn has taken: that turn can be stopped."""
    if waiting_messages.has_joined(turn):
        raise AlreadySentConflict
    engine.cancel(turn)


def move_message(turn: Turn, places: int) -> None:
    """Raises AlreadySentConflict."""
    try:
        waiting_messages.move(turn, places)
    except waiting_messages.AlreadySent as exc:
        raise AlreadySentConflict from exc
    _after_commit(engine.announce_queue, turn.conversation_id)


def reorder_messages(conversation_id: str, ids: Sequence[str]) -> None:
    """Raises QueueChangedConflict."""
    try:
        waiting_messages.reorder(conversation_id, ids)
    except waiting_messages.QueueChanged as exc:
        raise QueueChangedConflict from exc
    _after_commit(engine.announce_queue, conversation_id)


def _after_commit(act: Callable[[Any], None], about: Any) -> None:
    transaction.on_commit(partial(act, about))
