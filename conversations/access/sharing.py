"""Who may share conversations by link, and who may open such a link.

`SHARE_LINKS` names the widest audience of new and existing links; a `ShareRule`
replaces it for the members of a group. A link is checked on each request, so a narrower
setting, a revocation and a deactivated owner end it at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import Max
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from conversations.access import admission, rate_limits
from conversations.access.errors import TooFast
from conversations.access.participation import check_not_temporary
from conversations.access.rate_limits import Charge
from conversations.access.user_lock import lock_user
from conversations.models import (
    BranchChoice,
    Conversation,
    Item,
    ShareLink,
    ShareRule,
    Turn,
)
from conversations.models.share_link import Audience

MAX_LINKS = 200  # of one person, unrevoked
LONGEST = 3650  # days until a link expires
#: Of one address that is not signed in: pages and files; and as many looks of open
#: pages for what is new.
VIEWS_PER_MINUTE = 240

#: From the narrowest to the widest.
_ORDER = ["off", Audience.GROUP, Audience.SIGNED_IN, Audience.PUBLIC]


def widest_audience(user: Any) -> str:
    """The widest audience with which `user` may share; "off" for none."""
    rules = ShareRule.objects.filter(group__user=user.pk)
    found = list(rules.values_list("widest", flat=True)) or [settings.SHARE_LINKS]
    return max(found, key=_ORDER.index)


def allowed_audiences(user: Any) -> list[str]:
    """The audiences with which `user` may share, the narrowest first."""
    last = _ORDER.index(widest_audience(user))
    return [str(audience) for audience in _ORDER[1 : last + 1]]


@transaction.atomic
def create_link(
    conversation: Conversation, user: Any, fields: Mapping[str, Any]
) -> ShareLink:
    """Store a link to the user's conversation. `fields`: `audience`, `group`, `kind`,
    `turn` (the last one to share; without it that of the branch shown), `days` until it
    expires, and what it shows. Raises ValidationError, which names the field."""
    check_not_temporary(conversation)
    _check_audience(user, fields)
    lock_user(user)
    if ShareLink.objects.of(user).count() >= MAX_LINKS:
        raise ValidationError(
            _("You have %(count)s links; revoke some that you no longer need.")
            % {"count": MAX_LINKS}
        )
    leaf = _find_leaf(conversation, fields.get("turn") or "")
    days = fields.get("days")
    link = ShareLink(
        conversation=conversation,
        owner=user,
        audience=fields["audience"],
        group=fields.get("group") if fields["audience"] == Audience.GROUP else None,
        kind=fields["kind"],
        leaf=leaf,
        last_item=_last_item(leaf),
        title=conversation.title,
        expires_at=timezone.now() + timedelta(days=days) if days else None,
        **{name: bool(fields.get(name)) for name in SHOWN},
    )
    link.set_new_token()
    link.save(force_insert=True)
    return link


#: Fields that say what a link shows beside messages and answers.
SHOWN = ("shows_owner", "shows_reasoning", "shows_arguments", "shows_results")


def _check_audience(user: Any, fields: Mapping[str, Any]) -> None:
    audience, group = fields["audience"], fields.get("group")
    if audience not in allowed_audiences(user):
        raise ValidationError(
            {"audience": _("You may not share with this audience; ask the staff.")}
        )
    if audience != Audience.GROUP:
        return
    if group is None:
        raise ValidationError({"group": _("Choose the group that may open it.")})
    if not user.groups.filter(pk=group.pk).exists():
        raise ValidationError({"group": _("You are not a member of this group.")})


def _find_leaf(conversation: Conversation, turn_id: str) -> Turn:
    turns = conversation.turns.filter(deleted_at=None)
    if turn_id and not turns.filter(pk=turn_id).exists():
        raise ValidationError({"turn": _("There is no such turn here.")})
    shown = BranchChoice.objects.shown_leaf(conversation.pk, conversation.owner_id)
    if not (leaf := turns.filter(pk=turn_id or shown or "").first()):
        raise ValidationError(_("There is nothing to share yet; write a message."))
    return leaf


def _last_item(leaf: Turn) -> int:
    """Items of a turn are written in the order of their keys."""
    line = Turn.objects.lineage_of(leaf)
    return Item.objects.filter(turn__in=line).aggregate(last=Max("pk"))["last"] or 0


# Opening a link


def find_open_link(token: str, user: Any) -> ShareLink | None:
    """The link that this token opens for `user`, who may be anonymous. None also where
    the setting or a rule does not permit it any more."""
    link = ShareLink.objects.with_token(token) if len(token) < 100 else None
    if link is None or link.audience not in allowed_audiences(link.owner):
        return None
    return link if _is_in_audience(link, user) else None


def needs_sign_in(token: str) -> bool:
    """Whether the token opens a link for signed-in users."""
    link = ShareLink.objects.with_token(token) if len(token) < 100 else None
    return link is not None and link.audience in allowed_audiences(link.owner)


def _is_in_audience(link: ShareLink, user: Any) -> bool:
    if link.audience == Audience.PUBLIC:
        return True
    if not (user.is_authenticated and user.is_active):
        return False
    if link.audience == Audience.SIGNED_IN or user.pk == link.owner_id:
        return True
    # A group that the owner has left does not get the owner's conversations.
    both = {user.pk, link.owner_id}
    group = link.group
    return group is not None and group.user_set.filter(pk__in=both).count() == len(both)


def take_view(user: Any, address: str, *, follows: bool = False) -> None:
    """Count a view against a limit a minute; if it `follows`, an open page's look for
    what is new, which takes nothing from those who open a link. Raises TooFast."""
    if user.is_authenticated:
        if follows:
            admission.take_user_look(user)
        else:
            admission.take_user_request(user, 0)
        return
    verdict = rate_limits.take(
        f"shared{'-looks' if follows else ''}:{address}",
        [Charge("views", VIEWS_PER_MINUTE, 1)],
    )
    if not verdict.is_allowed:
        wait = verdict.retry_after
        raise TooFast("Too many views; try again in a moment.", retry_after=wait)
