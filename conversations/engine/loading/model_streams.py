"""The streams of a turn's model calls, their cache, and the streams of summaries."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from django.conf import settings

from conversations.engine.loading.available_tools import AvailableTools
from conversations.engine.loading.turn_context import TurnContext
from conversations.engine.metering import Meter
from conversations.models import Turn
from conversations.turns.compactor import WindowCompactor
from conversations.turns.history import room_for_prompt
from conversations.turns.split_deltas import split_batches
from llm.cache.cache_seconds import seconds_of
from llm.cache.cached_stream import CacheScope, describe_leniency, with_cache
from llm.generation import retries
from llm.generation.request_builder import RequestBuilder
from llm.http.client import Stream
from llm.http.inline_files import FileCache
from llm.provider import Route
from llm.wire.request import Request


def stream_of(
    conversation_id: str,
    routes: Sequence[Route],
    options: Mapping[str, Any],
    meter: Meter | None,
    scope: CacheScope,
    *,
    is_gateway: bool = False,
) -> Stream:
    stream: Stream = partial(
        retries.stream,
        routes,
        buffered=not is_gateway,
        strict=not is_gateway,
        ignore_invalid=options.get("ignore_invalid_options") is True,
        droppable=options.get("droppable_options") or (),
        files=FileCache(),
        admit=meter.admit if meter else None,
        affinity=conversation_id,
    )
    stream = meter.meter_stream(stream) if meter else stream
    if scope.seconds:
        stream = with_cache(stream, routes[0], scope)
    return split_batches(stream) if is_gateway else stream


def cache_scope(
    turn: Turn,
    options: Mapping[str, Any],
    available: AvailableTools,
    context: TurnContext,
) -> CacheScope:
    """As the turn's own options, its access token, or its model and preset have it.

    A later turn depends on what is stored, a repeated one is to be answered anew, and
    context sources may be personal: none of these uses the cache. The client knows what
    its own functions do, so their calls come from the cache only if the turn's own
    options ask for it.
    """
    token, named = turn.access_token, turn.options.get("cache_seconds")
    seconds = options.get("cache_seconds") if named is None else named
    seconds = seconds_of({"cache_seconds": seconds}) if seconds else 0
    if named is None and token is not None and token.cache_seconds is not None:
        seconds = token.cache_seconds
    owner_id = turn.actor_id
    is_personal = bool(context.sources or context.on_demand or context.blocks)
    if not seconds or is_personal or _has_other_turns(turn):
        return CacheScope(owner_id=owner_id, seconds=0)
    safe = [tool.name for tool in available.tools.values() if tool.replay == "safe"]
    functions = available.client if named is not None else ()
    return CacheScope(
        owner_id=owner_id,
        seconds=seconds,
        leniency=describe_leniency(
            options.get("ignore_invalid_options") is True,
            options.get("droppable_options") or (),
        ),
        safe_functions={*safe, *functions},
    )


def _has_other_turns(turn: Turn) -> bool:
    return turn.conversation.turns.exclude(pk=turn.pk).exists()


#: Options for answers that a summary does not have.
_NOT_FOR_SUMMARIES = ("stop", "text", "tool_choice", "top_logprobs")


def compactor_builder(
    turn: Turn,
    routes: Sequence[Route],
    options: Mapping[str, Any],
    meter: Meter | None,
) -> Callable[..., WindowCompactor] | None:
    """None for turns of the gateway, whose clients choose the context themselves.

    The result is held while the answer is generated, so it has no row: those of a turn,
    with its conversation, user and model, take 6 KB.
    """
    threshold = settings.COMPACTION_THRESHOLD / 100
    if not threshold or "gateway" in turn.options:
        return None
    route = routes[0]
    maximum = options.get("max_output_tokens") or route.max_output_tokens
    return partial(
        WindowCompactor,
        open_stream=partial(
            _summary_stream,
            turn.actor_id,
            turn.conversation_id,
            routes,
            options,
            meter,
        ),
        build=partial(_summary_request, route),
        room=room_for_prompt(route.capabilities.context_window, maximum),
        threshold=threshold,
    )


def _summary_stream(
    owner_id: int,
    conversation_id: str,
    routes: Sequence[Route],
    options: Mapping[str, Any],
    meter: Meter | None,
) -> Stream:
    scope = CacheScope(owner_id=owner_id, seconds=0)
    lenient = {**options, "ignore_invalid_options": True}
    return stream_of(conversation_id, routes, lenient, meter, scope)


def _summary_request(route: Route, request: Request) -> Request:
    options = dict.fromkeys(_NOT_FOR_SUMMARIES)
    return RequestBuilder(route).build(request, options)
