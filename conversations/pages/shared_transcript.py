"""The turns that a link shows, without anything that its owner did not choose to show.

Instructions, memories, context sources, summaries, errors of providers and decisions
about calls are never shown. Thoughts, arguments and results are, if the link says so;
arguments and results of tools over the owner's memories and chats are not. Words of a
cited source, and the name of a cited file, count as results.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any, assert_never

from django.urls import reverse
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from conversations.models import Attachment, Item, ShareLink, ToolCall, Tree, Turn
from conversations.models.item import CONTINUES
from conversations.pages.blocks import (
    RESULT_CALL_ID,
    BackgroundResultBlock,
    Block,
    CallGroup,
    CallRows,
    MessageBlock,
    ReasoningBlock,
    SteeringBlock,
    SummaryBlock,
    ToolCallBlock,
    build_blocks,
)
from conversations.pages.reading.citations import Citation
from conversations.turns import waiting_messages
from conversations.turns.attachments import attachment_ids
from conversations.turns.tool_display import FileLink, Picture, Piece, file_piece
from llm.wire.items import Item as ItemPayload
from llm.wire.items import text_of

PAGE = 50  # turns
CONTINUED = "continued"  # the role that templates know

#: Tools that read the owner's memories, chats and context sources.
PRIVATE_TOOLS = {"remember", "recall", "forget", "get_history", "get_context"}


@dataclass(frozen=True, slots=True)
class SharedPicture(Picture):
    """An attachment at the link's own address."""

    @property
    def is_attachment(self) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class SharedFile(FileLink):
    @property
    def is_attachment(self) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class SharedMessage:
    role: str
    text: str
    files: Sequence[Piece]


@dataclass(frozen=True, slots=True)
class SharedTurn:
    turn: Turn
    messages: Sequence[SharedMessage]
    blocks: Sequence[Block]
    note: str | Promise  # why the answer is not complete; "" if it is
    is_growing: bool

    @property
    def version(self) -> str:
        """A digest of what is shown; without anything that is not."""
        model = self.turn.language_model
        return _digest(self.messages, self.blocks, str(self.note), str(model))


@dataclass(frozen=True, slots=True)
class SharedTranscript:
    """A page of what a link shows, oldest turn first."""

    turns: Sequence[SharedTurn]
    page: int  # from 1
    pages: int

    def state(self, titles: Mapping[str, Any]) -> str:
        """A digest that differs once a reader would see something else."""
        versions = [(seen.turn.pk, seen.version) for seen in self.turns]
        return _digest(self.page, self.pages, versions, sorted(titles.items()))


def _digest(*values: Any) -> str:
    return hashlib.sha256(repr(values).encode()).hexdigest()[:16]


def shared_transcript(link: ShareLink, token: str, page: int) -> SharedTranscript:
    line = line_of(link)
    pages = max(1, -(-len(line) // PAGE))
    page = min(max(page, 1), pages)
    rows = Turn.objects.filter(pk__in=line[(page - 1) * PAGE : page * PAGE])
    rows = rows.select_related("language_model__provider")
    turns = rows.prefetch_related("items", "tool_calls__questions", "deliveries")
    view = _View(link, token)
    shown = [view.turn(turn) for turn in turns.order_by("created_at", "pk")]
    return SharedTranscript(shown, page, pages)


def line_of(link: ShareLink) -> list[str]:
    """Ids of the turns that the link shows, oldest first: the shared turn and those
    before it; if the link is live, also the newest of those that follow it and were
    sent."""
    tree = Tree.of(link.conversation_id)
    leaf = link.leaf_id
    if leaf is not None and leaf not in tree.turns:  # its owner has deleted it
        rows = Turn.objects.filter(conversation=link.conversation_id)
        parents = dict(rows.values_list("pk", "parent_id"))
        while leaf is not None and leaf not in tree.turns:
            leaf = parents.get(leaf)
    if leaf is None:  # erased; another branch was never shared
        return []
    if link.is_snapshot:
        return tree.lineage(leaf)
    # The owner may still change or remove a message that waits.
    waiting = {turn.pk for turn in waiting_messages.load(link.conversation_id)}
    line = tree.lineage(tree.leaf_of(leaf))
    return list(takewhile(lambda pk: pk not in waiting, line))


def find_shared_file(link: ShareLink, file_id: str) -> Attachment | None:
    """A file of the conversation that the link shows."""
    files = Attachment.objects.filter(conversation=link.conversation_id, pk=file_id)
    if (row := files.first()) is None:
        return None
    view = _View(link, "")
    items = Item.objects.filter(turn__in=line_of(link), payload__icontains=row.pk)
    named = (
        name
        for item in items
        if view.is_shown(item)
        for name in attachment_ids([item.payload])
    )
    return row if row.pk in named else None


class _View:
    """What one link shows of a turn."""

    def __init__(self, link: ShareLink, token: str) -> None:
        self._link = link
        self._token = token

    def turn(self, turn: Turn) -> SharedTurn:
        items = [row for row in turn.items.all() if self._is_included(row)]
        inputs = [row.payload for row in items if row.origin == Item.Origin.INPUT]
        outputs = [row.payload for row in items if row.origin == Item.Origin.OUTPUT]
        partial = () if self._link.is_snapshot else turn.partial or ()
        rows = self._call_rows(turn, inputs)
        blocks = build_blocks([*outputs, *partial], rows)
        return SharedTurn(
            turn,
            messages=[m for item in inputs if (m := self._message(item))],
            blocks=list(self._shown_blocks(blocks)),
            note=self._note(turn),
            is_growing=not (self._link.is_snapshot or turn.is_finished),
        )

    def is_shown(self, item: Item) -> bool:
        """Whether the files that the item names are shown."""
        if not self._is_included(item):
            return False
        if item.type == "message" and RESULT_CALL_ID not in item.payload:
            return item.payload.get("role") in ("user", "assistant")
        if not self._link.shows_results:
            return False
        call_id = item.payload.get("call_id") or item.payload.get(RESULT_CALL_ID)
        calls = ToolCall.objects.filter(turn__conversation=self._link.conversation_id)
        private = calls.filter(call_id=call_id or "", name__in=PRIVATE_TOOLS)
        return item.type != "reasoning" and not private.exists()

    def _is_included(self, item: Item) -> bool:
        link = self._link
        return not link.is_snapshot or item.pk <= (link.last_item or 0)

    def _has_shown_result(self, call: ToolCall) -> bool:
        if call.name in PRIVATE_TOOLS:
            return False
        if not self._link.is_snapshot:
            return True
        return call.ended_at is not None and call.ended_at <= self._link.created_at

    def _call_rows(self, turn: Turn, inputs: Iterable[ItemPayload]) -> CallRows:
        def ended(calls: Iterable[ToolCall]) -> dict[str, ToolCall]:
            return {
                call.call_id: call
                for call in calls
                if call.name in PRIVATE_TOOLS or self._has_shown_result(call)
            }

        return CallRows(
            calls=ended(turn.tool_calls.all()), delivered=ended(turn.deliveries.all())
        )

    def _message(self, item: ItemPayload) -> SharedMessage | None:
        is_said = item["type"] == "message" and RESULT_CALL_ID not in item
        if not is_said or item["role"] not in ("user", "assistant"):
            return None
        if item.get(CONTINUES):  # words of the server's, for the model
            return SharedMessage(CONTINUED, "", [])
        parts = [part for part in item["content"] if isinstance(part, dict)]
        kinds = ("input_image", "input_file")
        files = [file_piece(part) for part in parts if part["type"] in kinds]
        return SharedMessage(item["role"], text_of(item), self._pieces(files))

    def _note(self, turn: Turn) -> str | Promise:
        """The sentence says nothing about the provider: it may name keys and hosts."""
        late = self._link.is_snapshot and not (
            turn.finished_at and turn.finished_at <= self._link.created_at
        )
        if late or not turn.is_finished:
            return _("The answer was not finished.") if late else _("Answering…")
        match turn.status:
            case Turn.Status.FAILED | Turn.Status.INCOMPLETE:
                return _("The answer could not be finished.")
            case Turn.Status.CANCELLED:
                return _("The answer was stopped.")
        return ""

    def _shown_blocks(self, blocks: Iterable[Block]) -> Iterable[Block]:
        for block in blocks:
            match block:
                case MessageBlock():
                    citations = self._shown_citations(block.citations)
                    yield replace(block, citations=citations)
                case SteeringBlock():
                    yield block
                case ReasoningBlock():
                    if self._link.shows_reasoning:
                        yield block
                case CallGroup():
                    calls = [self._call(call) for call in block.calls]
                    yield CallGroup(block.key, calls)
                case ToolCallBlock():
                    yield self._call(block)
                case SummaryBlock():
                    pass
                case _:
                    assert_never(block)

    def _shown_citations(self, citations: Sequence[Citation]) -> Sequence[Citation]:
        if self._link.shows_results:
            return citations
        nameless = str(_("File"))  # in its place: numbers in the text count it
        return [
            Citation(each.url, each.title if each.url else nameless)
            for each in citations
        ]

    def _call(self, block: ToolCallBlock) -> ToolCallBlock:
        link = self._link
        is_result = isinstance(block, BackgroundResultBlock)
        of_tool = block.tool if isinstance(block, BackgroundResultBlock) else block.name
        is_private = of_tool in PRIVATE_TOOLS
        has_arguments = link.shows_arguments and not is_private
        has_results = link.shows_results and not is_private
        has_preview = has_results if is_result else has_arguments
        return replace(
            block,
            preview=block.preview if has_preview else "",
            arguments=block.arguments if has_arguments else (),
            approved_arguments=block.approved_arguments if has_arguments else (),
            output=self._pieces(block.output) if has_results else (),
            error=block.error if has_results else "",
            full_output_url="",
            message="",
            decision="",
        )

    def _pieces(self, pieces: Iterable[Piece]) -> list[Piece]:
        return [self._piece(piece) for piece in pieces]

    def _piece(self, piece: Piece) -> Piece:
        """The piece, with the address of an attachment replaced by the link's own."""
        if not isinstance(piece, Picture | FileLink) or not piece.is_attachment:
            return piece
        file_id = piece.url.rstrip("/").rpartition("/")[2]
        url = reverse("shared-file", args=[self._token, file_id])
        if isinstance(piece, Picture):
            return SharedPicture(url)
        return SharedFile(piece.name, url)


def find_titles(link: ShareLink) -> dict[str, Any]:
    """Template context: what stands above a shared transcript."""
    name = link.owner.get_full_name() or link.owner.get_username()
    return {"title": link.shown_title, "owner": name if link.shows_owner else ""}
