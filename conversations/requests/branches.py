"""Requests about branches that pages, REST and the WebSocket share."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from conversations import engine
from conversations.access import admission, budget, maintenance
from conversations.access.limits.admission import admit_message
from conversations.access.webhooks.limit_events import notes_refusals
from conversations.engine import message_consequences
from conversations.models import (
    Conversation,
    IdempotencyKey,
    ToolCall,
    Tree,
    Turn,
)
from conversations.models.access_token import AccessToken
from conversations.models.item import CONTINUES
from conversations.turns import branches
from llm.errors import ModelNotAvailable
from llm.generation.request_builder import RequestBuilder
from llm.router import keyless_route_of
from llm.wire.request import Request


def end_of_branch(conversation: Conversation, turn_id: str) -> Turn | None:
    """The newest turn of the branch that goes through this turn; None if there is no
    such turn."""
    tree = Tree.of(conversation.pk)
    if turn_id not in tree.turns:
        return None
    return conversation.turns.get(pk=tree.leaf_of(turn_id))


def delete_branch(turn: Turn) -> None:
    """Hide the turn and all that follow it, and stop what still runs there."""
    gone = branches.delete_branch(turn)
    message_consequences.cancel_calls(ToolCall.objects.filter(turn__in=gone))
    for each in Turn.objects.filter(pk__in=gone).not_finished():
        engine.cancel(each)
    engine.announce_branches(turn.conversation_id)


def find_deleted_branch(user: Any, turn_id: str) -> Turn | None:
    """The first turn of a deleted branch of the user that is not erased yet."""
    own = Conversation.objects.of(user).values("pk")
    rows = Turn.objects.filter(
        pk=turn_id, conversation__in=own, deleted_at__gte=_erased_before()
    )
    return rows.select_related("conversation").first()


def restore_branch(turn: Turn) -> bool:
    """False if it is erased by now, or a turn that it follows is deleted too."""
    is_restored = branches.restore_branch(turn)
    if is_restored:
        engine.announce_branches(turn.conversation_id)
    return is_restored


def find_deleted_conversation(user: Any, pk: str) -> Conversation | None:
    """A deleted conversation of the user that is not erased yet."""
    return _deleted_conversations(user).filter(pk=pk).first()


@transaction.atomic
def restore_conversations(user: Any, ids: Sequence[str]) -> int:
    """Show deleted conversations to their owner again. Returns how many."""
    rows = _deleted_conversations(user).filter(pk__in=ids)
    imported = rows.exclude(import_key=None)
    for row in imported:  # it may have been imported again
        row.restore()
    return len(imported) + rows.filter(import_key=None).update(deleted_at=None)


def _deleted_conversations(user: Any) -> QuerySet[Conversation]:
    rows = Conversation.objects.filter(
        owner_id=user.pk, deleted_at__gte=_erased_before()
    )
    return rows.exclude(is_temporary=True, session=None)  # over with its session


def _erased_before() -> Any:
    """The time before which deleted rows may be erased at any moment."""
    days = settings.DELETED_RETENTION_DAYS
    return timezone.now() - timedelta(days=days or 36_500)


def fork_once(user: Any, turn: Turn, key: str) -> Turn:
    """Copy the conversation up to this turn, once for each key.

    Raises KeyReused, MessageRemoved.
    """
    if not key:
        return branches.fork(turn)
    fingerprint = hashlib.sha256(f"fork:{turn.pk}".encode()).hexdigest()
    copy, _ = IdempotencyKey.objects.get_or_open(
        user, key, fingerprint, partial(branches.fork, turn)
    )
    return Turn.objects.select_related("conversation").get(pk=copy.pk)


@notes_refusals
def continue_turn(turn: Turn, user: Any, token: AccessToken | None = None) -> Turn:
    """Go on with a message that has reached a limit, or with an answer that was cut
    off. Returns the turn that goes on.

    Raises CannotContinue, TooFast, BudgetExhausted.
    """
    maintenance.check_open()
    if token is None:
        admission.check_user_may_continue(user)
    else:
        if token.tokens_per_minute:
            admission.check_tokens_available(token, 1)
        budget.check_budget(token)
    try:
        return engine.continue_message(
            turn, token, user, admit=partial(admit_message, user.pk, token)
        )
    except message_consequences.CannotContinue:
        if not branches.is_cut(turn):
            raise
    opened = _open_continuation(turn, user, token)
    engine.submit(opened.pk, opened.conversation_id, owner=user.pk)
    return opened


@transaction.atomic
def _open_continuation(turn: Turn, user: Any, token: AccessToken | None) -> Turn:
    """The turn that goes on; the one that does already, if it is not over yet."""
    Conversation.objects.select_for_update(no_key=True).get(pk=turn.conversation_id)
    if (running := _find_continuation(turn)) is not None:
        return running
    opened = _open_behind_or_beside(turn, user, token)
    admit_message(user.pk, token)
    return opened


def _open_behind_or_beside(turn: Turn, user: Any, token: AccessToken | None) -> Turn:
    author = None if user.pk == turn.conversation.owner_id else user
    begun = branches.begun_message(turn)
    options = turn.options_for(author)
    options.pop(CONTINUES, None)
    if begun is None or not _takes_prefill(turn, options):
        return turn.conversation.open_turn(
            branches.continuation_items(),
            language_model=turn.language_model,
            options=options,
            parent=turn,
            access_token=token,
            author=author,
        ).turn
    opened = turn.conversation.open_turn(
        branches.question_items(turn),
        language_model=turn.language_model,
        options={**options, CONTINUES: turn.pk},
        access_token=token,
        author=author,
        **branches.place_beside(turn),
    ).turn
    # Its run finds the text as if an earlier one had left it, and goes on behind it.
    opened.partial = [begun]
    opened.save(update_fields=["partial"])
    return opened


def _find_continuation(turn: Turn) -> Turn | None:
    """The unfinished turn that continues this one: behind it, or beside it."""
    rows = turn.conversation.turns.not_finished().filter(deleted_at=None)
    beside = rows.filter(parent_id=turn.parent_id)
    for sibling in beside:
        if sibling.options.get(CONTINUES) == turn.pk:
            return sibling
    for child in rows.filter(parent=turn):
        first = child.items.order_by("position").first()
        if first is not None and CONTINUES in first.payload:
            return child
    return None


def _takes_prefill(turn: Turn, options: dict[str, Any]) -> bool:
    """Whether the turn's model continues a text that it is given, with these options;
    another model that is tried instead would answer anew."""
    if turn.language_model is None or "gateway" in options:
        return False
    preset = turn.conversation.preset
    options = {**(preset.options if preset else {}), **options}
    try:
        route = keyless_route_of(turn.language_model)
    except ModelNotAvailable:
        return False
    request = RequestBuilder(route).build(Request(model="", items=()), options)
    form = (request.text or {}).get("format") or {}
    effort = (request.reasoning or {}).get("effort")
    return form.get("type", "text") == "text" and route.takes_prefill(effort)
