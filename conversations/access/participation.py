"""Invitations to conversations: who may invite, accept, leave and write.

An invitation names a person by the exact user name. It is stored, and shown to the
owner, in the same way whether or not there is such a person, so that invitations do not
reveal which names exist. Only accepting one shows it.
"""

from __future__ import annotations

from typing import Any

from django.contrib.auth import get_user_model
from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils.translation import gettext_lazy as _

from conversations.models import AuthorGone, Conversation, Participant, Turn
from conversations.models.participant import WRITING_ROLES, Role
from conversations.models.tool_call import stop_turns

MAX_PEOPLE = 20  # invited to one conversation
MAX_NAME = 150  # characters, as of Django's user names


def check_not_temporary(conversation: Conversation) -> None:
    """A temporary chat is promised to be in nobody's lists, and it is erased when its
    owner signs out. Raises ValidationError."""
    if conversation.is_temporary:
        raise ValidationError(_("A temporary chat cannot be shared."))


@transaction.atomic
def invite(conversation: Conversation, name: str, role: str) -> Participant:
    """Invite the person with this name, or change the role of a person who is invited
    already. A repeated call also reaches a person who took the name since then, and
    ends the rights of one who had it before. Who has accepted by a former name has one
    role, under the new name. Raises ValidationError."""
    check_not_temporary(conversation)
    name = name.strip()
    if not name or len(name) > MAX_NAME:
        raise ValidationError({"name": _("Write the person's user name.")})
    if role not in Role.values:
        raise ValidationError({"role": _("Choose what the person may do.")})
    if name == conversation.owner.get_username():
        raise ValidationError({"name": _("This is your own conversation.")})
    # Two tabs that invite one person at once do so one after the other.
    Conversation.objects.select_for_update(no_key=True).only("pk").get(
        pk=conversation.pk
    )
    users = get_user_model()._default_manager.filter(is_active=True)
    user = users.filter(username=name).first()
    current = Participant.objects.current().filter(conversation=conversation)
    known = current.filter(name=name).first()
    if known and known.user and known.user.get_username() != name:
        remove(known)
        known = None
    if joined := _joined_by_former_name(current, user, name):
        if known:
            known.revoke()
        joined.name, known = name, joined
    if known:
        known.role = role
        known.user_id = known.user_id or (user.pk if user else None)
        known.save(update_fields=["name", "role", "user"])
        if known.user_id is not None and not known.may_write:
            _stop_work(known)
        return known
    if current.count() >= MAX_PEOPLE:
        raise ValidationError(
            _("%(count)s people are invited already; remove one first.")
            % {"count": MAX_PEOPLE}
        )
    return Participant.objects.create(
        conversation=conversation,
        user=user,
        name=name,
        role=role,
        invited_by=conversation.owner,
    )


def _joined_by_former_name(
    current: QuerySet[Participant], user: Any, name: str
) -> Participant | None:
    """None also for an invitation that is not accepted: in its place the new name would
    tell that both are one person's."""
    if user is None:
        return None
    accepted = current.filter(user=user, accepted_at__isnull=False)
    return accepted.exclude(name=name).first()


def remove(participant: Participant) -> None:
    """End the participation. Turns and background calls of the participant that still
    run are stopped."""
    participant.revoke()
    if participant.user_id is not None:
        _stop_work(participant)


def _stop_work(participant: Participant) -> None:
    stop_turns(
        Turn.objects.filter(
            conversation=participant.conversation_id, author=participant.user_id
        )
    )


def shown_participants(conversation: Conversation, user: Any) -> Any:
    """The invitations, for the owner; for a participant those who have accepted."""
    rows = Participant.objects.current().filter(conversation=conversation)
    if conversation.owner_id == user.pk:
        return rows
    return rows.filter(accepted_at__isnull=False)


def removable_by(user: Any) -> Any:
    """Participants whom `user` may remove: those of the user's own conversations, and
    the user (who leaves, or declines)."""
    own = Q(conversation__owner_id=user.pk, conversation__deleted_at=None)
    return Participant.objects.current().filter(own | Q(user_id=user.pk))


def role_of(user: Any, conversation: Conversation) -> str:
    """The role of a participant; "" for the owner and for everybody else."""
    if conversation.owner_id == user.pk:
        return ""
    rows = Participant.objects.joined().filter(conversation=conversation)
    roles = rows.filter(user_id=user.pk).values_list("role", flat=True)
    return max(roles, key=Role.values.index, default="")


def check_author(turn: Turn) -> None:
    """Check that the author of a turn, and the access token that sent it, may still
    write in the conversation, so that no turn uses the keys and permissions of a former
    participant or token, nor the owner's instead.

    Raises AuthorGone.
    """
    author, token = turn.actor, turn.access_token
    if not author.is_active:
        raise AuthorGone
    if token is not None and not token.is_live:
        raise AuthorGone("The access token that sent this is revoked or expired.")
    if turn.author_id is None:
        return
    rows = Participant.objects.joined().filter(
        conversation=turn.conversation_id, user=author, role__in=WRITING_ROLES
    )
    if not rows.exists():
        raise AuthorGone
