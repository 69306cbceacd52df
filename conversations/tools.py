"""Tools over the user's data: memories, earlier conversations and context sources.

Each tool reads only data of the user who calls it. What they read is sent to the
provider of the conversation's model. So by default the tools over memories are for
presets that name them, and the others are disabled.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import partial
from itertools import islice
from typing import Annotated, Any

from django.utils.formats import date_format
from pydantic import Field

from conversations import context as sources
from conversations.access.stored_turn_visibility import without_chats
from conversations.models import AccessToken, Conversation, Item, Turn, memory
from conversations.models.limits.conversation_limit import ConversationLimit
from conversations.models.memory import MAX_COUNT, MAX_TEXT, Memory, TooManyMemories
from conversations.models.preset import Preset
from conversations.search.index_queries import CHUNK
from conversations.search.matching import Query, fold
from conversations.search.memories import find_memories
from conversations.search.message_search import Match, MessageSearch, Unindexed
from conversations.search.stored_messages import searchable_text
from tools.errors import ToolError
from tools.registry import Context, tool

MAX_RECALLED = 20  # memories in one output
MAX_MATCHES = 2000  # newest matching messages that are read
MAX_CONVERSATION_MATCHES = 50  # matching messages of one conversation
MAX_EXCERPTS = 3  # excerpts of one conversation in one output
EXCERPT = 600  # characters of a message


@tool(label="Remember", replay="idempotent", only_in_presets=True)
def remember(
    text: Annotated[str, Field(min_length=1, max_length=MAX_TEXT)], context: Context
) -> dict[str, Any]:
    """Remember something about the user for all later conversations.

    Use it when the user asks you to, or tells a lasting fact or wish about themselves.
    Never remember passwords or other secrets. The user can see and delete what is
    remembered.

    Args:
        text: One fact or wish, in a sentence that can be understood by itself.
    """
    if not text.strip():
        raise ToolError("the text is empty; write a sentence.")
    try:
        row = Memory.objects.remember(
            _user_of_memories(context), text, context.conversation_id, _turn(context)
        )
    except TooManyMemories as exc:
        raise ToolError(
            f"the limit of {MAX_COUNT} memories is reached; delete one that is no"
            " longer useful with `forget`."
        ) from exc
    return _memory_result(row)


@tool(label="Recall", replay="safe", only_in_presets=True)
def recall(
    context: Context, query: Annotated[str, Field(max_length=500)] = ""
) -> list[dict[str, Any]]:
    """Look up what was remembered about the user in earlier conversations.

    Args:
        query: Words to look for, in the language of the memories; empty for the newest
            ones.
    """
    found = find_memories(_user_of_memories(context), query, MAX_RECALLED)
    return [_memory_result(row) for row in found]


@tool(label="Forget", replay="idempotent", only_in_presets=True)
def forget(id: int, context: Context) -> str:
    """Forget something that was remembered about the user.

    Args:
        id: Of the memory, as `recall` tells it.
    """
    if not memory.forget(_user_of_memories(context), id, _turn(context)):
        raise ToolError(f"there is no memory {id}; `recall` tells those there are.")
    return "Forgotten."


@tool(label="Earlier conversations", replay="safe", risk="reads", enabled=False)
def get_history(
    context: Context,
    query: Annotated[str, Field(max_length=500)] = "",
    limit: Annotated[int, Field(ge=1, le=20)] = 5,
) -> list[dict[str, Any]]:
    """Look through the user's other conversations with this assistant.

    Args:
        query: Words to look for in titles and messages, in the language in which they
            were written; empty for the latest conversations.
        limit: How many conversations to tell of at most.
    """
    theirs: Any = Conversation.objects.filter(
        owner=_user(context), deleted_at=None, is_temporary=False
    )
    if not context.may_read_chats:
        theirs = without_chats(theirs)
    if (reach := _limit_of(context)) is not None:
        theirs = reach.narrow(theirs)
    others = theirs.exclude(pk=context.conversation_id)
    if not query.strip():
        return [_conversation_result(row, []) for row in others[:limit]]
    return _find_conversations(others, _user(context), Query.of(query), limit)


@tool(label="Context", replay="safe", risk="reads", enabled=False)
async def get_context(name: str, context: Context) -> str:
    """Read a source of further context that the instructions name.

    Args:
        name: Of the source.
    """
    found, reader = await sources.run_in_thread(partial(_sources_of, context))
    chosen = next((source for source in found if source.name == name), None)
    if chosen is None:
        names = ", ".join(source.name for source in found)
        there = f"there are: {names}." if names else "this conversation has none."
        raise ToolError(f"there is no context {name[:64]!r}; {there}")
    [rendering] = await sources.render([chosen], reader)
    if rendering.reason:
        raise ToolError(f"{name} cannot be read: {rendering.reason}")
    return rendering.text


def _user(context: Context) -> int:
    if context.user_id is None:
        raise ToolError(
            "no user is signed in, so there are no conversations or memories."
        )
    return context.user_id


def _limit_of(context: Context) -> ConversationLimit | None:
    """The conversations to which the program is limited whose request makes the
    call. Raises ToolError if its token was deleted: nothing tells of a limit then."""
    if context.access_token_id is None:
        return None
    token = AccessToken.objects.filter(pk=context.access_token_id).first()
    if token is None:
        raise ToolError("the access token of this program was deleted.")
    return token.conversation_limit


def _user_of_memories(context: Context) -> int:
    """Raises ToolError for a program that is limited to conversations: what is
    remembered comes from all of them."""
    user_id = _user(context)
    if _limit_of(context) is not None:
        raise ToolError("this program may not read or change what is remembered.")
    return user_id


def _turn(context: Context) -> str | None:
    """The turn of the call; None outside a conversation."""
    turns = Turn.objects.filter(
        pk=context.turn_id, conversation=context.conversation_id
    )
    return turns.values_list("pk", flat=True).first()


def _memory_result(row: Memory) -> dict[str, Any]:
    return {"id": row.pk, "text": row.text, "since": _day(row.created_at)}


def _day(at: Any) -> str:
    return date_format(at, "Y-m-d")


# Earlier conversations


def _find_conversations(
    others: Any, user_id: int, query: Query, limit: int
) -> list[dict[str, Any]]:
    """Conversations that match: first those with all words, then the others; of each
    up to `MAX_EXCERPTS` messages with the most words."""
    visible = _find_matches(others, user_id, query, limit)
    rows = others.in_bulk(list(visible))
    pks = [match.item for matches in visible.values() for match in matches]
    items = Item.objects.in_bulk(pks)
    found = []
    for pk, matches in visible.items():
        if pk not in rows:
            continue  # it was erased since it was found
        payloads = [items[m.item].payload for m in matches if m.item in items]
        messages = [(p["role"], searchable_text(p)) for p in payloads]
        scored = [
            (query.score(fold(text)), f"{role}: {text}") for role, text in messages
        ]
        best = sorted(scored, key=lambda each: -each[0])
        found.append(_conversation_result(rows[pk], [each for each in best if each[0]]))
    return found


def _find_matches(
    others: Any, user_id: int, query: Query, limit: int
) -> dict[str, list[Match]]:
    """Matching messages by conversation, of at most `limit` of the others: first those
    that have all words."""
    matches_by_conversation: dict[str, list[Match]] = {}
    unindexed = Unindexed.of(user_id)
    for needs_all in (True, False):
        search = MessageSearch(user_id, query, unindexed, needs_all)
        for match in islice(_only_of(others, search), MAX_MATCHES):
            if (
                match.conversation not in matches_by_conversation
                and len(matches_by_conversation) == limit
            ):
                break
            matches = matches_by_conversation.setdefault(match.conversation, [])
            if match not in matches and len(matches) < MAX_CONVERSATION_MATCHES:
                matches.append(match)
        titles = search.titles()
        theirs = _ids_of(others, titles)
        for pk in titles:
            if pk in theirs and len(matches_by_conversation) < limit:
                matches_by_conversation.setdefault(pk, [])
    return matches_by_conversation


def _only_of(others: Any, search: MessageSearch) -> Iterator[Match]:
    """The matches in conversations that the caller may see."""
    found = iter(search)
    while chunk := list(islice(found, CHUNK)):
        theirs = _ids_of(others, {match.conversation for match in chunk})
        yield from (match for match in chunk if match.conversation in theirs)


def _ids_of(others: Any, pks: Collection[str]) -> set[str]:
    return set(others.filter(pk__in=pks).order_by().values_list("pk", flat=True))


def _conversation_result(
    row: Conversation, scored_texts: list[tuple[int, str]]
) -> dict[str, Any]:
    result = {"title": row.title, "last_used": _day(row.updated_at)}
    if not scored_texts:
        return result
    texts = [text for _, text in scored_texts[:MAX_EXCERPTS]]
    return {**result, "messages": [_excerpt(text) for text in texts]}


def _excerpt(text: str) -> str:
    return text if len(text) <= EXCERPT else f"{text[:EXCERPT]}…"


# Context


def _sources_of(context: Context) -> tuple[list[sources.LoadedSource], sources.Reader]:
    """The context sources of the calling conversation's preset.

    None are returned if the conversation is not the caller's, or if its owner may not
    use the preset.
    """
    row = (
        Conversation.objects.filter(
            pk=context.conversation_id, owner=_user(context), deleted_at=None
        )
        .select_related("owner", "preset")
        .first()
    )
    reader = sources.Reader(user_id=_user(context))
    if row is None or row.preset is None:
        return [], reader
    if not Preset.objects.available_to(row.owner).filter(pk=row.preset.pk).exists():
        return [], reader
    return row.preset.context_sources(row.owner), reader_of(row)


def reader_of(row: Conversation) -> sources.Reader:
    return sources.Reader(
        user_id=row.owner.pk,
        username=row.owner.get_username(),
        conversation_id=row.pk,
    )
