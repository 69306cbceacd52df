"""Row of a conversation, which opens turns."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Unpack

from django.apps import apps
from django.conf import settings
from django.db import connection, models, transaction
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from conversations import turn_queue
from conversations.audit.record import record_event
from conversations.input.checks import inline_size
from conversations.input.client_outputs import OUTPUT_TYPES
from conversations.models.branch_choice import (
    BranchChoice,
    Tree,
    find_last_and_chosen,
    skip_failed_requests,
)
from conversations.models.folder import Folder, Tag
from conversations.models.item import Item
from conversations.models.opened_turn import OpenedTurn, TurnFields
from conversations.models.signed_in_session import SignedInSession
from conversations.models.tool_call import ToolCall, find_new_items
from conversations.models.turn import POOL, Turn
from llm.db.durable_commit import sync_on_commit
from llm.db.statements import (
    CompiledInsert,
    CompiledQuery,
    CompiledRows,
    adapt_value,
    insert_together,
)
from llm.models import LanguageModel
from llm.wire.items import Item as ItemPayload
from llm.wire.items import new_id, text_of

TITLE_LENGTH = 80  # characters


def conversation_id() -> str:
    return new_id("conv")


class ConversationQuerySet(models.QuerySet["Conversation"]):
    def of(self, user: Any) -> ConversationQuerySet:
        """Conversations that `user` may see outside of the admin. If `user` comes with
        an access token that is limited to conversations, only those."""
        rows = self.filter(owner_id=user.pk, deleted_at=None)
        limit = getattr(user, "conversation_limit", None)
        return rows if limit is None else limit.narrow(rows)

    def kept(self) -> ConversationQuerySet:
        """Without temporary conversations, which no list and no search shows."""
        return self.filter(is_temporary=False)

    def for_people(self) -> ConversationQuerySet:
        """Without those that responses of the gateway opened, which fill no list of the
        chat."""
        return self.filter(is_from_api=False)

    def visible_to(self, user: Any) -> ConversationQuerySet:
        """As `of`, and conversations in which `user` takes part."""
        return self._own_or_joined(user, _participants().joined())

    def writable_by(self, user: Any) -> ConversationQuerySet:
        """As `of`, and conversations in which `user` may write."""
        return self._own_or_joined(user, _participants().writers())

    def _own_or_joined(self, user: Any, rows: Any) -> ConversationQuerySet:
        joined = rows.filter(user_id=user.pk).values("conversation_id")
        own = models.Q(owner_id=user.pk)
        found = self.filter(own | models.Q(pk__in=joined), deleted_at=None)
        limit = getattr(user, "conversation_limit", None)
        return found if limit is None else limit.narrow(found)

    def find_visible(self, user: Any, pk: str) -> Conversation | None:
        """One conversation as in `visible_to`. For its owner as fast as `find`."""
        is_limited = hasattr(user, "conversation_limit")
        if not is_limited and (own := _BY_OWNER.first(user.pk, pk)):
            return own
        return self.visible_to(user).select_related("owner").filter(pk=pk).first()

    def find_writable(self, user: Any, pk: str) -> Conversation | None:
        """One conversation as in `writable_by`. For its owner as fast as `find`."""
        is_limited = hasattr(user, "conversation_limit")
        if not is_limited and (own := _BY_OWNER.first(user.pk, pk)):
            return own
        return self.writable_by(user).select_related("owner").filter(pk=pk).first()

    def find(self, user: Any, pk: str) -> Conversation | None:
        """One conversation as in `of`, with its owner, by a compiled query."""
        return _BY_OWNER.first(user.pk, pk)


class TitleSource(models.TextChoices):
    WORDS = "words", _("first words of the conversation")
    MODEL = "model", _("a language model")
    PERSON = "person", _("a person")


def _participants() -> Any:
    return apps.get_model("conversations", "Participant").objects


class Conversation(models.Model):
    id = models.CharField(
        primary_key=True, max_length=64, default=conversation_id, editable=False
    )
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.CASCADE, related_name="conversations"
    )
    title = models.CharField(max_length=200, blank=True)
    is_from_api = models.BooleanField(
        _("from the API"),
        default=False,
        db_default=False,
        help_text=_("A response of the gateway opened it, and no person wrote in it."),
    )
    language_model = models.ForeignKey(
        LanguageModel,
        models.SET_NULL,
        null=True,
        blank=True,
        help_text=_(
            "Empty means the folder's model, the preset's, or the default model."
        ),
    )
    #: The name of the pool by which `language_model` was chosen; the pool's hosts then
    #: answer.
    model_pool = models.CharField(
        max_length=100, blank=True, default="", db_default="", editable=False
    )
    preset = models.ForeignKey(
        "conversations.Preset",
        models.SET_NULL,
        null=True,
        blank=True,
        related_name="conversations",
    )
    instructions = models.TextField(
        blank=True,
        help_text=_(
            "System prompt; empty means the folder's prompt, the preset's, or the"
            " site's."
        ),
    )
    options = models.JSONField(
        default=dict, blank=True, help_text=_("Options for every turn.")
    )
    folder = models.ForeignKey(
        Folder,
        models.SET_NULL,
        null=True,
        blank=True,
        related_name="conversations",
    )
    tags = models.ManyToManyField(Tag, blank=True, related_name="conversations")
    pinned_at = models.DateTimeField(null=True, blank=True)
    archived_at = models.DateTimeField(null=True, blank=True)
    title_source = models.CharField(
        max_length=10,
        choices=TitleSource.choices,
        default=TitleSource.WORDS,
        db_default=TitleSource.WORDS,
        help_text=_("Who wrote the title; a person's title is never replaced."),
    )
    is_temporary = models.BooleanField(
        default=False,
        db_default=False,
        help_text=_("Erased when its session ends, or after a day."),
    )
    session = models.ForeignKey(
        SignedInSession,
        models.SET_NULL,
        null=True,
        blank=True,
        editable=False,
        related_name="+",
        db_index=False,
        help_text=_("The session with which a temporary conversation ends."),
    )
    # Not null also marks forks of imported chats ("fork:ID"), and restored chats whose
    # own key another import has taken ("restored:ID"): others may have written in them.
    import_key = models.CharField(
        max_length=200,
        null=True,
        blank=True,
        editable=False,
        help_text=_("Program and id from which the conversation was imported."),
    )
    imported_names = models.JSONField(
        null=True,
        blank=True,
        editable=False,
        help_text=_("Names of models and presets that this site does not have."),
    )
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(default=timezone.now, db_index=True)
    deleted_at = models.DateTimeField(null=True, blank=True, editable=False)
    rewritten = models.PositiveIntegerField(
        default=0,
        db_default=0,
        editable=False,
        help_text=_("Number of times that messages were corrected or removed."),
    )
    #: Number of times that an item was corrected or erased.
    corrections = models.PositiveIntegerField(default=0, db_default=0, editable=False)
    indexed_title = models.CharField(
        max_length=200,
        null=True,
        editable=False,
        help_text=_("The title that is in the search index."),
    )

    objects = ConversationQuerySet.as_manager()

    class Meta:
        ordering = ["-updated_at"]
        indexes = [
            models.Index(fields=["owner", "-updated_at"]),
            models.Index(
                fields=["owner"],
                condition=models.Q(indexed_title=None)
                | ~models.Q(title=models.F("indexed_title")),
                name="conversations_title_unindexed",
            ),
            models.Index(
                fields=["owner"],
                condition=models.Q(pinned_at__isnull=False),
                name="conversations_pinned",
            ),
            models.Index(
                fields=["created_at"],
                condition=models.Q(is_temporary=True),
                name="conversations_temporary",
            ),
        ]
        constraints = [
            models.UniqueConstraint(
                fields=["owner", "import_key"],
                condition=models.Q(deleted_at=None, import_key__isnull=False),
                name="conversations_import_once",
            )
        ]

    def __str__(self) -> str:
        return self.title or self.id

    @property
    def usual_model(self) -> LanguageModel | None:
        """The model of turns that name none; None for the site's default model."""
        if self.language_model:
            self.language_model.pool_name = self.model_pool
            return self.language_model
        folder_model = self.folder.language_model if self.folder else None
        preset_model = self.preset.language_model if self.preset else None
        return folder_model or preset_model

    @transaction.atomic(savepoint=False)
    def open_turn(
        self, items: Sequence[ItemPayload], **fields: Unpack[TurnFields]
    ) -> OpenedTurn:
        """Create the turn that will answer `items`, together with the items.

        It runs after the turns that it follows. The owner then looks at its branch. If
        all items are outputs that were sent before, no turn is created and the turn
        that received them is returned. A conversation that has no row yet gets one.

        Raises CallAlreadyAnswered and the errors of
        `conversations.input.client_outputs`.
        """
        author = fields.get("author")
        if author is not None and author.pk == self.owner_id:
            author = fields["author"] = None
        if self._state.adding:
            return self._open_first_turn(items, fields)
        if connection.features.has_select_for_update:
            self._lock()
        viewer = self.owner_id if author is None else author.pk
        last, chosen = find_last_and_chosen(self.pk, viewer)
        parent = fields.get("parent")
        if branch := fields.get("branch"):
            parent = self._end_of(branch, last)
        is_placed = parent is not None or fields.get("is_first", False)
        if not is_placed:
            parent = self._last_shown(last, chosen)
            if items and "gateway" in (fields.get("options") or {}):
                parent = self.skip_failed_requests(parent)
        has_outputs = any(item["type"] in OUTPUT_TYPES for item in items)
        if has_outputs and parent is not None:
            items, answered_turn = find_new_items(items, parent)
            if answered_turn is not None:
                return OpenedTurn(turn=answered_turn)
        turn = self._new_turn(items, parent, last, fields)
        rows = self._write(turn, items)
        if is_placed and turn.caused_by_id is None and "gateway" not in turn.options:
            self._show_branch_of(turn, last, chosen, viewer)
        return OpenedTurn(turn=turn, items=rows)

    def _open_first_turn(
        self, items: Sequence[ItemPayload], fields: TurnFields
    ) -> OpenedTurn:
        """Create the conversation and its first turn."""
        turn = self._new_turn(items, None, None, fields)
        rows = self._write(turn, items)
        return OpenedTurn(turn=turn, items=rows, is_conversation_new=True)

    def _lock(self) -> None:
        """Turns run in the order of `created_at`. The lock makes the order of creation
        independent of the clocks of several machines."""
        _LOCK.rows(self.pk)

    def _new_turn(
        self,
        items: Sequence[ItemPayload],
        parent: Turn | None,
        last: Turn | None,
        fields: TurnFields,
    ) -> Turn:
        now, author = timezone.now(), fields.get("author")
        model = fields.get("language_model") or self.language_model
        has_own_model = fields.get("language_model") is not None
        pool_name = model.pool_name if model and has_own_model else self.model_pool
        pool = {POOL: pool_name} if pool_name else {}
        self.updated_at = now
        return Turn(
            conversation=self,
            parent=parent,
            comparison=fields.get("comparison", ""),
            language_model=model,
            options={
                **self.options_for(author),
                **(fields.get("options") or {}),
                **pool,
            },
            access_token=fields.get("access_token"),
            caused_by_id=fields.get("caused_by"),
            author=author,
            author_name=author.get_username()
            if author
            else fields.get("author_name", ""),
            inline_bytes=inline_size(items),
            created_at=max(now, last.created_at + _LATER) if last else now,
        )

    def _write(self, turn: Turn, items: Sequence[ItemPayload]) -> list[Item]:
        """Write the turn with its items, and the conversation, or its title and
        time."""
        sync_on_commit()
        rows = [
            Item(
                turn=turn,
                position=position,
                origin=Item.Origin.INPUT,
                type=payload["type"],
                payload=payload,
            )
            for position, payload in enumerate(items)
        ]
        if not self.title:
            self.title = _title_of(items)
        if self.is_from_api and turn.access_token_id is None and not turn.caused_by_id:
            self.is_from_api = False  # a person goes on with it
            Conversation.objects.filter(pk=self.pk).update(is_from_api=False)
        is_new = self._state.adding
        change = (_TOUCH, [self.title, adapt_value(self.updated_at), self.pk])
        if connection.vendor == "postgresql" and len(rows) == 1:
            inserts: list[tuple[CompiledInsert[Any], models.Model]] = [
                (_write_turn, turn),
                (_write_items, rows[0]),
            ]
            if is_new:
                inserts.append((_write_conversation, self))
            is_first = turn.parent_id is None
            queueing = turn_queue.find_call(turn.pk, self.pk, is_first=is_first)
            insert_together(inserts, None if is_new else change, queueing)
            return rows
        if is_new:
            _write_conversation(self)
        _write_turn(turn)
        _write_items(*rows)
        if not is_new:
            with connection.cursor() as cursor:
                cursor.execute(*change)
        turn_queue.enqueue(turn.pk)
        return rows

    def _last_shown(self, last: Turn | None, chosen: str | None) -> Turn | None:
        """The last turn of the branch that a viewer looks at who has `chosen`;
        `last` is the newest of the conversation, which it is unless there are
        branches."""
        if last is None or (chosen is None and last.deleted_at is None):
            return last
        shown = Tree.of(self.pk).shown_leaf(chosen)
        return self.turns.get(pk=shown) if shown else None

    def skip_failed_requests(self, shown: Turn | None) -> Turn | None:
        """`shown`, the last turn of a branch. If that is a program's request that
        failed, the end of the branch before it: those sent again are beside it."""
        before = skip_failed_requests(shown)
        if before is shown:
            return shown
        tree = Tree.of(self.pk)
        leaf = tree.leaf_of(before.pk) if before else tree.newest
        return skip_failed_requests(self.turns.filter(pk=leaf).first())

    def _end_of(self, turn_id: str, last: Turn | None) -> Turn | None:
        """The newest turn of the branch that goes through this turn. Called with the
        lock, so that of two people who write at once each sees the other's turn."""
        tree = Tree.of(self.pk)
        if turn_id not in tree.turns:
            return None
        leaf = tree.leaf_of(turn_id)
        return last if last and last.pk == leaf else self.turns.get(pk=leaf)

    def _show_branch_of(
        self, turn: Turn, last: Turn | None, chosen: str | None, viewer: int
    ) -> None:
        """Let the viewer look at the branch of a new turn, unless it continues the only
        branch."""
        is_only = last is None or turn.parent_id == last.pk
        if is_only and chosen is None:
            return
        BranchChoice.objects.choose(self.pk, viewer, turn.pk)

    def options_for(self, author: Any) -> dict[str, Any]:
        """The options of a turn that `author` writes, the owner or None for the owner.
        Tools that the owner has declared may contain the owner's credentials."""
        options: dict[str, Any] = self.options
        if author is None or author.pk == self.owner_id:
            return options
        return {name: value for name, value in options.items() if name != "tools"}

    def last_turn_for(self, user_id: int) -> Turn | None:
        """The last turn of the branch that this user looks at, with its model."""
        rows = self.turns.select_related("language_model__provider")
        if BranchChoice.objects.chosen(self.pk, user_id) is None:
            alive = rows.filter(deleted_at=None)
            return alive.order_by("-created_at", "-id").first()
        shown = BranchChoice.objects.shown_leaf(self.pk, user_id)
        return rows.filter(pk=shown).first() if shown else None

    def delete_softly(self) -> None:
        """Hide the conversation from its owner; retention erases the rows later."""
        self.deleted_at = timezone.now()
        self.save(update_fields=["deleted_at"])
        if not self.is_temporary:  # these end with their session, by themselves
            record_event("content.delete", target=self, subject=self.owner_id)
        self.turns.not_finished().update(cancel_requested=True)
        running = ToolCall.objects.in_background().filter(turn__conversation=self)
        running.update(cancel_requested=True)

    @transaction.atomic
    def restore(self) -> None:
        """Show a deleted conversation to its owner again. What ran was stopped. One
        that was imported again meanwhile is a conversation of its own from then on,
        whose words others may have written all the same."""
        same = Conversation.objects.filter(owner=self.owner_id, deleted_at=None)
        if self.import_key and same.filter(import_key=self.import_key).exists():
            self.import_key = f"restored:{self.pk}"
        self.deleted_at = None
        self.save(update_fields=["deleted_at", "import_key"])


_LATER = timedelta(microseconds=1)
_TOUCH = (
    "UPDATE conversations_conversation SET title = %s, updated_at = %s WHERE id = %s"
)
_write_turn, _write_items = CompiledInsert(Turn), CompiledInsert(Item)
_write_conversation = CompiledInsert(Conversation)
_LOCK = CompiledRows(
    lambda pk: (
        Conversation.objects.filter(pk=pk)
        .select_for_update(no_key=True)
        .order_by()
        .values_list("pk")
    ),
    "a conversation",
)
_BY_OWNER = CompiledQuery[Conversation](
    lambda user, pk: Conversation.objects.filter(owner_id=user, deleted_at=None, pk=pk),
    -1,
    "a conversation",
    related=("owner",),
)


def _title_of(items: Sequence[ItemPayload]) -> str:
    text = " ".join(" ".join(text_of(item) for item in items).split())
    return text if len(text) <= TITLE_LENGTH else text[: TITLE_LENGTH - 1] + "…"
