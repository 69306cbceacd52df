"""What a preset allows the turns of its conversations: models, tokens, cost, calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

from django.db.models import F, Sum

from conversations.models import Turn
from conversations.models.preset import Preset
from llm.errors import BadRequest
from llm.models import ModelCall
from llm.provider import Route
from llm.wire.request import Request


class ModelNotInPreset(BadRequest):
    """The preset of this conversation does not allow this model; choose another one."""

    code, status = "E_MODEL_NOT_IN_PRESET", 403

    def __init__(self) -> None:
        super().__init__(" ".join((self.__doc__ or "").split()), param="model")


def filter_routes(preset: Preset, routes: Sequence[Route]) -> Sequence[Route]:
    """Without fallbacks that the preset does not allow. Raises ModelNotInPreset."""
    allowed = preset.allowed_model_ids()
    if not allowed:
        return routes
    if routes[0].model_id not in allowed:
        raise ModelNotInPreset
    return [route for route in routes if route.model_id in allowed]


def check_model(preset: Preset, model_id: int) -> None:
    """Raises ModelNotInPreset."""
    allowed = preset.allowed_model_ids()
    if allowed and model_id not in allowed:
        raise ModelNotInPreset


def limit_output(preset: Preset, template: Request) -> Request:
    """No answer is longer than all tokens of a turn."""
    asked, bound = template.max_output_tokens, preset.max_tokens
    if bound is None or (asked is not None and asked <= bound):
        return template
    return replace(template, max_output_tokens=bound)


def max_tool_calls(preset: Preset, options: Mapping[str, Any]) -> int | None:
    """The lower one of the preset's and the request's number."""
    asked: int | None = options.get("max_tool_calls")
    bound = preset.max_tool_calls
    if asked is None or bound is None:
        return bound if asked is None else asked
    return min(asked, bound)


def cost_left(preset: Preset, turn: Turn, of_message: Decimal | None) -> Decimal | None:
    """USD that the turn may still cost, which is not more than its message may."""
    bound = preset.max_cost
    if bound is None:
        return of_message
    if turn.epoch > 1:
        spent = _calls(turn).aggregate(sum=Sum("cost"))["sum"]
        bound -= spent or 0
    return bound if of_message is None else min(bound, of_message)


def tokens_left(preset: Preset, turn: Turn) -> int | None:
    bound = preset.max_tokens
    if bound is None or turn.epoch <= 1:
        return bound
    both = Sum(F("input_tokens") + F("output_tokens"))
    used: int | None = _calls(turn).aggregate(sum=both)["sum"]
    return bound - (used or 0)


def _calls(turn: Turn) -> Any:
    return ModelCall.objects.filter(turn_id=turn.pk)
