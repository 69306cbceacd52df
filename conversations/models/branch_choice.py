"""The tree of a conversation's turns, and the branch that each viewer looks at."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from django.conf import settings
from django.db import models

from conversations.models.turn import Turn
from llm.db.statements import CompiledQuery, CompiledRows


class TreeTurn(NamedTuple):
    """The place of a turn that is not deleted."""

    id: str
    parent_id: str | None
    caused_by_id: str | None
    comparison: str


@dataclass(frozen=True, slots=True)
class Tree:
    """The turns of a conversation that are not deleted, in the order of creation."""

    turns: dict[str, TreeTurn]
    children: dict[str | None, list[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, conversation_id: str) -> Tree:
        """Read by one query."""
        return cls.from_rows(map(TreeTurn._make, _TREE.rows(conversation_id)))

    @classmethod
    def from_rows(cls, rows: Any) -> Tree:
        """`rows` in the order of creation: a turn comes after its parent."""
        tree = cls({row.id: row for row in rows})
        for row in tree.turns.values():
            parent = row.parent_id if row.parent_id in tree.turns else None
            tree.children.setdefault(parent, []).append(row.id)
        return tree

    @classmethod
    def from_turns(cls, turns: models.QuerySet[Turn]) -> Tree:
        rows = turns.order_by("created_at", "id").values_list(*TreeTurn._fields)
        return cls.from_rows(map(TreeTurn._make, rows))

    @property
    def newest(self) -> str | None:
        return next(reversed(self.turns), None)

    def lineage(self, turn_id: str | None) -> list[str]:
        """The turn and its ancestors, oldest first; empty for an unknown turn."""
        line: dict[str, None] = {}
        while turn_id is not None and turn_id in self.turns and turn_id not in line:
            line[turn_id] = None
            turn_id = self.turns[turn_id].parent_id
        return list(line)[::-1]

    def descendants(self, turn_id: str) -> list[str]:
        """The turn and all that follow it."""
        found, unread = dict.fromkeys([turn_id]), [turn_id]
        while unread:
            for child in self.children.get(unread.pop(), ()):
                if child not in found:
                    found[child] = None
                    unread.append(child)
        return list(found)

    def leaf_of(self, turn_id: str) -> str:
        """The newest turn of the branch that goes through this turn."""
        below = set(self.descendants(turn_id))
        return next(pk for pk in reversed(self.turns) if pk in below)

    def shown_leaf(self, chosen: str | None) -> str | None:
        """The last turn of the branch of a viewer who chose this turn; without a
        choice, of the branch that was continued last. None if there is no turn."""
        if chosen is not None and chosen in self.turns:
            return self.leaf_of(chosen)
        return self.newest

    def siblings(self, turn_id: str) -> list[str]:
        """The turns between which a viewer chooses at this place, the turn included:
        those that people opened. A turn that a background result opened has none."""
        turn = self.turns[turn_id]
        if turn.caused_by_id is not None:
            return [turn_id]
        parent = turn.parent_id if turn.parent_id in self.turns else None
        same = self.children.get(parent, [])
        return [pk for pk in same if self.turns[pk].caused_by_id is None]

    def compared(self, turn_id: str) -> list[str]:
        """The turns that were opened to be compared with this one, itself included."""
        comparison = self.turns[turn_id].comparison
        if not comparison:
            return [turn_id]
        siblings = self.siblings(turn_id)
        return [pk for pk in siblings if self.turns[pk].comparison == comparison]

    def __iter__(self) -> Iterator[str]:
        return iter(self.turns)


_TREE = CompiledRows(
    lambda conversation: (
        Turn.objects.filter(conversation_id=conversation, deleted_at=None)
        .order_by("created_at", "id")
        .values_list(*TreeTurn._fields)
    ),
    "a conversation",
)


#: The newest turn of a conversation, and the one that a viewer chose last, if any.
_LAST = CompiledQuery[Turn](
    lambda conversation, user: (
        Turn.objects.filter(conversation_id=conversation)
        .annotate(
            chosen=models.Subquery(
                BranchChoice.objects.filter(
                    conversation_id=models.OuterRef("conversation_id"), user_id=user
                ).values("leaf_id")
            )
        )
        .order_by("-created_at", "-id")[:1]
    ),
    "a conversation",
    -1,
    columns=(
        "id",
        "created_at",
        "conversation_id",
        "parent_id",
        "deleted_at",
        "status",
    ),
    beside=("chosen",),
)


def find_last_and_chosen(
    conversation_id: str, user_id: int
) -> tuple[Turn | None, str | None]:
    """The newest turn of the conversation, and the id of the one that the viewer chose
    last."""
    rows = _LAST.rows(conversation_id, user_id)
    return (_LAST.create_instance(rows[0]), rows[0][-1]) if rows else (None, None)


class BranchChoiceQuerySet(models.QuerySet["BranchChoice"]):
    def chosen(self, conversation_id: str, user_id: int) -> str | None:
        """Id of the turn that the viewer chose last, if any."""
        rows = _CHOSEN.rows(conversation_id, user_id)
        return rows[0][0] if rows else None

    def shown_leaf(self, conversation_id: str, user_id: int) -> str | None:
        """Id of the last turn of the branch that the viewer looks at."""
        chosen = self.chosen(conversation_id, user_id)
        return Tree.of(conversation_id).shown_leaf(chosen)

    def choose(self, conversation_id: str, user_id: int, turn_id: str) -> None:
        """Let the viewer look at the branch that goes through this turn."""
        self.update_or_create(
            conversation_id=conversation_id,
            user_id=user_id,
            defaults={"leaf_id": turn_id},
        )


class BranchChoice(models.Model):
    """The branch of a conversation that a viewer looks at.

    Only conversations whose turns branch have such rows. A branch is longer than its
    `leaf`: it ends with the newest turn that follows it.
    """

    conversation = models.ForeignKey(
        "conversations.Conversation", models.CASCADE, related_name="branch_choices"
    )
    user = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="+")
    leaf = models.ForeignKey(Turn, models.CASCADE, related_name="+")

    objects = BranchChoiceQuerySet.as_manager()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["conversation", "user"],
                name="conversations_branch_choice_once",
            )
        ]

    def __str__(self) -> str:
        return f"{self.leaf_id} in {self.conversation_id}"


_CHOSEN = CompiledRows(
    lambda conversation, user: BranchChoice.objects.filter(
        conversation_id=conversation, user_id=user
    ).values_list("leaf_id"),
    "a conversation",
    -1,
)


def skip_failed_requests(turn: Turn | None) -> Turn | None:
    """`turn`, or the nearest before it that is no failed request: SDKs send those again
    by themselves, and their input counts once."""
    while turn is not None and turn.is_failed_request:
        turn = turn.parent
    return turn
