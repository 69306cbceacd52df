"""Routes of a turn whose model was named by a model pool: its hosts, in their order."""

from __future__ import annotations

from collections.abc import Iterator

from conversations.models import Turn
from conversations.models.turn import POOL
from llm import router
from llm.errors import LLMError
from llm.models import LanguageModel
from llm.pools.choice import find_pool, order_models
from llm.provider import Route


def find(turn: Turn) -> list[Route]:
    """The routes to the pool's hosts that can be called now, in the order of calls.

    With the strategy `weights` a conversation stays with its host. Empty if the turn
    names no pool, if its model was changed to one outside of the pool, or if none of
    the hosts can be called: then the turn's own model answers.
    """
    name = turn.options.get(POOL)
    pool = find_pool(name, turn.actor) if name else None
    if pool is None:
        return []
    models = order_models(pool, affinity=turn.conversation_id)
    if all(each.pk != turn.language_model_id for each in models):
        return []
    if (token := turn.access_token) is not None:
        models = [each for each in models if token.may_use_model(each.pk)]
    return list(_usable_routes(turn, models))


def _usable_routes(turn: Turn, models: list[LanguageModel]) -> Iterator[Route]:
    for model in models:
        try:
            yield router.route_of(model, user=turn.actor)
        except LLMError:  # without a usable key, for example: the other hosts answer
            continue
