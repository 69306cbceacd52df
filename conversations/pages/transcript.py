"""Turns prepared for the chat page: input messages, then blocks of the answer.

Reading a window of turns takes a fixed number of queries, however long the conversation
is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext, gettext_lazy

from conversations.models import (
    Attachment,
    BranchChoice,
    Conversation,
    Item,
    Participant,
    Question,
    Rating,
    ToolCall,
    Tree,
    Turn,
)
from conversations.models.item import CONTINUES
from conversations.models.memory import Memory
from conversations.models.preset import NOTE_CONTEXT_FAILED
from conversations.pages.blocks import Block, CallRows, MessageBlock, build_blocks
from conversations.requests.answer_details import AnswerDetails, details_of
from conversations.turns.compaction import PINNED
from conversations.turns.tool_display import FileLink, Picture, file_piece, pretty
from llm.wire.items import Item as ItemPayload
from llm.wire.items import text_of

LATEST = 12  # turns of a page at first; a browser shows them without a pause
WINDOW = (
    20  # turns of a page that goes on, which scripts load when their reader is near
)
FOLLOWING = 25  # turns that are shown behind one that a link leads to
FEW = 5  # turns that are prepared at once for paper
#: Role of the message by which Parley asks the model to go on.
CONTINUED = "continued"

_CUT = gettext_lazy("The answer was cut short.")
INCOMPLETE = {
    "max_output_tokens": gettext_lazy("The answer reached its length limit."),
    "content_filter": gettext_lazy("The provider's content policy ended the answer."),
    "max_steps": gettext_lazy("The turn reached its limit of steps."),
    "repeated_tool_calls": gettext_lazy("The model kept repeating the same calls."),
    "max_answer_size": gettext_lazy("The answer reached this server's size limit."),
    "deadline": gettext_lazy("The turn reached its time limit."),
    "max_cost": gettext_lazy("The message reached its cost limit."),
    "max_tokens": gettext_lazy("The turn used all the tokens that its preset allows."),
}
_CHANGING_MEMORIES = {"remember", "forget"}  # names of tools in `conversations.tools`
_CUT_SHORT = (Turn.Status.INCOMPLETE, Turn.Status.CANCELLED, Turn.Status.FAILED)
_ENDED_WITHOUT_ERROR = (Turn.Status.COMPLETED, Turn.Status.CANCELLED)
_CUT_MARK = "\n[Cut: "  # which tools.execution.output appends to an output that it cuts


@dataclass(frozen=True, slots=True)
class Pinnable:
    """A message that stays when earlier messages are summarised, if it is pinned."""

    id: str
    pinned: bool


@dataclass(frozen=True, slots=True)
class InputMessage:
    role: str
    text: str
    files: Sequence[Picture | FileLink] = ()
    pinnable: Pinnable | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a turn among its siblings."""

    number: int = 1
    count: int = 1
    previous: str = ""  # id of the sibling before; "" for the first
    next: str = ""

    @classmethod
    def of(cls, tree: Tree, turn_id: str) -> Place:
        if turn_id not in tree.turns:
            return cls()
        siblings = tree.siblings(turn_id)
        number = siblings.index(turn_id)
        return cls(
            number=number + 1,
            count=len(siblings),
            previous=siblings[number - 1] if number else "",
            next=siblings[number + 1] if number + 1 < len(siblings) else "",
        )


@dataclass(frozen=True, slots=True)
class RenderedTurn:
    turn: Turn
    inputs: Sequence[InputMessage]
    blocks: Sequence[Block]
    degraded: Sequence[str] = ()  # options that were changed or left out
    open_questions: Sequence[Question] = ()  # open questions to a user
    standing: Sequence[Question] = ()  # approvals that cover further calls
    memories: Sequence[Memory] = ()  # the viewer's, that a model stored or forgot
    answer: Pinnable | None = None  # the last message of the answer
    details: AnswerDetails | None = None
    rating: Rating | None = None  # the viewer's
    place: Place = Place()  # among its siblings
    compared: Sequence[RenderedTurn] = ()  # answers to choose from, itself included
    author: str = ""  # who wrote it, where several people take part

    @property
    def is_empty(self) -> bool:
        """Whether the turn has nothing to show.

        For example a turn that was opened for the result of a background call, where an
        earlier turn delivered that result already.
        """
        is_silent = not (self.inputs or self.blocks or self.open_questions)
        return is_silent and self.turn.status in _ENDED_WITHOUT_ERROR

    @property
    def can_go_on(self) -> bool:
        """Whether the answer was cut off, so that the model may continue it."""
        is_cut = self.turn.status in _CUT_SHORT and bool(self.text)
        return is_cut and self.turn.halted_by not in Turn.BOUNDS

    @property
    def question(self) -> InputMessage | None:
        """The user's first message that is shown: links to the message lead to it."""
        messages = (m for m in self.inputs if m.role == "user")
        return next((m for m in messages if m.text or m.files), None)

    @property
    def can_edit(self) -> bool:
        is_asked = any(message.role == "user" for message in self.inputs)
        return self.turn.is_finished and is_asked

    @property
    def can_retry(self) -> bool:
        """Whether the turn has a user message that can be sent again."""
        return any(message.role in ("user", CONTINUED) for message in self.inputs)

    @property
    def missing_context(self) -> list[str]:
        """Sentences about context sources that could not be read."""
        words = gettext("Answered without the context “%(source)s”: %(reason)s")
        return [
            words % {"source": note.get("source", ""), "reason": note.get("text", "")}
            for note in self.turn.notes
            if note.get("kind") == NOTE_CONTEXT_FAILED
        ]

    @property
    def text(self) -> str:
        """The answer's Markdown source, for the copy button."""
        texts = (block.text for block in self.blocks if isinstance(block, MessageBlock))
        return "\n\n".join(texts)

    @property
    def elapsed(self) -> float:
        """Seconds since the turn started, or since it was queued."""
        since = self.turn.started_at or self.turn.created_at
        return (timezone.now() - since).total_seconds()

    @property
    def ending(self) -> str:
        """Why the answer is not complete; "" if it is, or if there is an error."""
        match self.turn.status:
            case Turn.Status.CANCELLED if self.blocks:
                return gettext("Stopped; the text so far is stored.")
            case Turn.Status.CANCELLED:
                return gettext("Stopped before the answer began.")
            case Turn.Status.INCOMPLETE:
                return str(INCOMPLETE.get(self.turn.incomplete_reason, _CUT))
            case Turn.Status.COMPLETED if not self.blocks:
                return gettext("The model gave an empty answer.")
        return ""


@dataclass(frozen=True, slots=True)
class Transcript:
    """A window of a conversation, oldest turn first."""

    turns: Sequence[RenderedTurn]
    has_earlier: bool
    is_latest: bool
    leaf: str = ""  # id of the branch's last turn

    @property
    def has_last(self) -> bool:
        """Whether the window contains the conversation's last turn."""
        return self.is_latest and bool(self.turns)

    @property
    def running(self) -> Turn | None:
        """The unfinished turn that the Stop button stops."""
        shown = (t for each in self.turns for t in each.compared or [each])
        return next((t.turn for t in shown if not t.turn.is_finished), None)


def transcript(
    conversation: Conversation,
    viewer: Any,
    *,
    before: str = "",
    at: str = "",
    branch: str = "",
) -> Transcript:
    """The last turns of the branch that the viewer looks at, the turns before the one
    with the id `before`, or those around the one with the id `at`. With `branch`, of
    the branch that goes through the turn with this id."""
    tree = Tree.of(conversation.pk)
    line = _line_of(conversation, viewer, tree, branch)
    pivot = before if before in tree.turns else at
    if pivot in tree.turns and pivot not in line:
        line = tree.lineage(tree.leaf_of(pivot))
    end = last = len(line)
    if before in tree.turns:
        end = last = line.index(before)
    elif at in tree.turns:
        last = min(end, line.index(at) + 1 + FOLLOWING)
        end = min(end, line.index(at) + 1 + WINDOW // 2)
    start = max(0, end - (LATEST if end == len(line) else WINDOW))
    shown = line[start:last]
    return Transcript(
        turns=_render_branch(conversation, viewer, tree, shown),
        has_earlier=start > 0,
        is_latest=last == len(line),
        leaf=line[-1] if line else "",
    )


def render_line(
    conversation: Conversation, viewer: Any
) -> Iterator[list[RenderedTurn]]:
    """All turns of the branch that the viewer looks at, a few at a time, so that a long
    conversation is never in memory as a whole. The last comes with those compared."""
    tree = Tree.of(conversation.pk)
    line = _line_of(conversation, viewer, tree)
    for start in range(0, len(line), FEW):
        few = line[start : start + FEW]
        if few[-1] == line[-1]:
            yield _render_branch(conversation, viewer, tree, few)
            continue
        rows = {
            row.pk: row for row in with_parts(conversation.turns.filter(pk__in=few))
        }
        yield render_turns([rows[pk] for pk in few if pk in rows], viewer, tree)


def _line_of(
    conversation: Conversation, viewer: Any, tree: Tree, branch: str = ""
) -> list[str]:
    """Ids of the turns of the branch that the viewer looks at, oldest first, or of the
    one through the turn with the id `branch`."""
    chosen = BranchChoice.objects.chosen(conversation.pk, viewer.pk)
    return tree.lineage(tree.shown_leaf(branch if branch in tree.turns else chosen))


def _render_branch(
    conversation: Conversation, viewer: Any, tree: Tree, shown: Sequence[str]
) -> list[RenderedTurn]:
    """The turns; if the last one was opened to be compared, with those beside it."""
    last = shown[-1] if shown else ""
    compared = tree.compared(last) if last else []
    if len(compared) < 2 or any(tree.children.get(each) for each in compared):
        compared = []  # nothing to compare, or a person has gone on with one of them
    ids = dict.fromkeys([*shown, *compared])
    rows = {row.pk: row for row in with_parts(conversation.turns.filter(pk__in=ids))}
    found = render_turns([rows[pk] for pk in ids if pk in rows], viewer, tree)
    rendered = {each.turn.pk: each for each in found}
    turns = [rendered[pk] for pk in shown if pk in rendered]
    if compared and turns:
        beside = [rendered[pk] for pk in compared if pk in rendered]
        turns[-1] = replace(turns[-1], compared=beside)
    return turns


def with_parts(turns: Any) -> Any:
    """The queryset with the related rows that `render_turns` reads."""
    return turns.select_related("language_model__provider").prefetch_related(
        "items", "tool_calls__questions__decided_by", "deliveries"
    )


def render_turns(
    turns: Sequence[Turn], viewer: Any, tree: Tree | None = None
) -> list[RenderedTurn]:
    """Turns of a conversation prepared for display. Three queries, whatever the number
    of turns; one more without the conversation's `tree`, and one if tools over memories
    were called."""
    if not turns:
        return []
    tree = tree or Tree.of(turns[0].conversation_id)
    details = details_of(turns)
    ratings = _ratings_of(turns, viewer)
    full_outputs = _full_output_urls(
        [call for turn in turns for call in turn.tool_calls.all()]
    )
    rows = CallRows(
        full_output_urls=full_outputs, client_outputs=_client_outputs(turns)
    )
    owners = _owners_of_shared(turns)
    memories = _changed_memories(turns, viewer)
    return [
        replace(
            _render_turn(turn, details[turn.pk].degraded, rows),
            details=details[turn.pk],
            rating=ratings.get(turn.pk),
            memories=memories.get(turn.pk, ()),
            place=Place.of(tree, turn.pk),
            author=_author(turn, owners),
        )
        for turn in turns
    ]


def _changed_memories(turns: Iterable[Turn], viewer: Any) -> dict[str, list[Memory]]:
    """What models stored and forgot about the viewer, by turn."""
    ids = [
        turn.pk
        for turn in turns
        if any(call.name in _CHANGING_MEMORIES for call in turn.tool_calls.all())
    ]
    found: dict[str, list[Memory]] = {}
    if ids and getattr(viewer, "pk", None):
        for memory in Memory.objects.changed_in(viewer.pk, ids).order_by("pk"):
            turn_id = memory.forgotten_in_id if memory.deleted_at else memory.turn_id
            found.setdefault(str(turn_id), []).append(memory)
    return found


def _owners_of_shared(turns: Iterable[Turn]) -> dict[str, str]:
    """The owners' names by conversation, where others take part."""
    shared = Participant.objects.joined().filter(
        conversation__in={turn.conversation_id for turn in turns}
    )
    return dict(shared.values_list("conversation_id", "conversation__owner__username"))


def _author(turn: Turn, owners: Mapping[str, str]) -> str:
    return turn.author_name or owners.get(turn.conversation_id, "")


def _client_outputs(turns: Iterable[Turn]) -> dict[str, Any]:
    """Outputs that clients sent for calls that they run, by call id."""
    rows = (row for turn in turns for row in turn.items.all())
    return {
        row.payload["call_id"]: row.payload["output"]
        for row in rows
        if row.origin == Item.Origin.INPUT and row.type == "function_call_output"
    }


def _render_turn(turn: Turn, degraded: Sequence[str], known: CallRows) -> RenderedTurn:
    rows = turn.items.all()
    inputs = [row.payload for row in rows if row.origin == Item.Origin.INPUT]
    outputs = [row.payload for row in rows if row.origin == Item.Origin.OUTPUT]
    calls = {call.call_id: call for call in turn.tool_calls.all()}
    delivered = {call.call_id: call for call in turn.deliveries.all()}
    known = replace(known, calls=calls, delivered=delivered)
    questions = [q for call in calls.values() for q in call.questions.all()]
    return RenderedTurn(
        turn,
        inputs=list(_input_messages(inputs)),
        blocks=build_blocks([*outputs, *(turn.partial or ())], known),
        degraded=degraded,
        open_questions=[q for q in questions if q.state == Question.State.OPEN],
        standing=[q for q in questions if q.always and q.revoked_at is None],
        answer=_last_message(outputs),
    )


def _last_message(items: Iterable[ItemPayload]) -> Pinnable | None:
    said = [item for item in items if item.get("role") == "assistant"]
    return _pinnable(said[-1]) if said else None


def _pinnable(item: ItemPayload) -> Pinnable | None:
    """None for a message of a client that gave it no id."""
    return Pinnable(item["id"], bool(item.get(PINNED))) if item.get("id") else None


def _ratings_of(turns: Iterable[Turn], viewer: Any) -> dict[str, Rating]:
    """The viewer's own ratings, by turn; those of others are for staff."""
    rows = Rating.objects.of(viewer).filter(turn__in=[turn.pk for turn in turns])
    return {row.turn_id: row for row in rows}


def _full_output_urls(calls: Iterable[ToolCall]) -> dict[str, str]:
    """URLs of the full outputs of calls whose output was cut, by call id."""
    cut = {
        call.call_id: call.turn.conversation_id
        for call in calls
        if isinstance(call.output, str) and _CUT_MARK in call.output[-200:]
    }
    if not cut:
        return {}
    files = Attachment.objects.filter(
        conversation_id__in=set(cut.values()),
        name__in=[f"{call_id}.txt" for call_id in cut],
    )
    return {
        name.removesuffix(".txt"): reverse("api:attachment", args=[pk])
        for pk, name in files.values_list("pk", "name")
    }


def _input_messages(items: Iterable[ItemPayload]) -> Iterable[InputMessage]:
    for item in items:
        if item["type"] == "message":
            parts = [part for part in item["content"] if isinstance(part, dict)]
            files = [
                file_piece(part)
                for part in parts
                if part["type"] in ("input_image", "input_file")
            ]
            pinnable = _pinnable(item) if item["role"] == "user" else None
            role = CONTINUED if item.get(CONTINUES) else item["role"]
            yield InputMessage(role, text_of(item), files, pinnable)
        elif item["type"] == "function_call_output":
            yield InputMessage("tool", pretty(item["output"]))
