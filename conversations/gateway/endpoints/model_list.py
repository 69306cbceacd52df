"""`GET /v1/models`: the models that a token may use, in the shape of the caller's API.

Source: https://platform.openai.com/docs/api-reference/models
Source: https://platform.claude.com/docs/en/api/models-list
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from typing import Any
from urllib.parse import unquote

from django.contrib.auth import get_user_model

from conversations.access.admission import check_model
from conversations.gateway import preset_models
from conversations.gateway.dialects import MESSAGES
from conversations.gateway.lookup_cache import Cache
from conversations.gateway.model_resolution import clear_with_models
from conversations.gateway.request_context import RequestContext
from llm import router
from llm.errors import ModelNotAvailable
from llm.models import LanguageModel
from llm.pools.choice import find_pool, list_pools

Shape = Callable[[str, LanguageModel], dict[str, Any]]
#: The models behind one name: several where it is a pool's.
Models = Sequence[LanguageModel]


async def list_models(context: RequestContext) -> None:
    available = await _listed.get(context.token.user_id, context.resources.database)
    shape = _shape(context)
    data = [
        shape(name, model)
        for name, models in available.items()
        if (model := _first_allowed(context, models)) is not None
    ]
    if context.dialect is MESSAGES:
        page = {
            "data": data,
            "has_more": False,
            "first_id": data[0]["id"] if data else None,
            "last_id": data[-1]["id"] if data else None,
        }
        await context.exchange.answer(200, page)
    else:
        await context.exchange.answer(200, {"object": "list", "data": data})


async def get_model(context: RequestContext) -> None:
    """One model, by any name that a request may use for it."""
    name = unquote(context.path_params["name"])
    key = context.token.user_id, name
    found = await _named.get(key, context.resources.database)
    model = _first_allowed(context, found)
    check_model(context.token, (model or found[0]).pk, name)
    await context.exchange.answer(200, _shape(context)(name, model or found[0]))


def _first_allowed(context: RequestContext, models: Models) -> LanguageModel | None:
    return next((m for m in models if context.token.may_use_model(m.pk)), None)


def _shape(context: RequestContext) -> Shape:
    return _anthropic if context.dialect is MESSAGES else _openai


def _openai(name: str, model: LanguageModel) -> dict[str, Any]:
    return {
        "id": name,
        "object": "model",
        "created": int(model.created_at.timestamp()),
        "owned_by": model.provider.name,
        "display_name": model.public_name,
        "capabilities": router.capabilities(model).to_dict(),
    }


def _anthropic(name: str, model: LanguageModel) -> dict[str, Any]:
    capabilities = router.capabilities(model).to_dict()
    return {
        "type": "model",
        "id": name,
        "display_name": model.public_name,
        "created_at": model.created_at.isoformat().replace("+00:00", "Z"),
        "max_input_tokens": capabilities.get("context_window"),
        "max_tokens": capabilities.get("max_output_tokens"),
        "capabilities": capabilities,
    }


def _list(user_id: int) -> dict[str, Models]:
    """Models by alias, by `provider/model`, and by bare name if that is unique."""
    user = get_user_model()._default_manager.get(pk=user_id)
    available = list(router.available(user).order_by("provider__name", "name"))
    names = [model.name for model in available]
    found: dict[str, Models] = {}
    for model in available:
        found[model.public_name] = [model]
    for model in available:
        found.setdefault(model.full_name, [model])
        if names.count(model.name) == 1:
            found.setdefault(model.name, [model])
    for name, models in list_pools(user).items():
        found.setdefault(name, [_called(name, each) for each in models])
    for name, (preset, model) in preset_models.list_presets(user).items():
        found.setdefault(name, [_called(str(preset), model)])
    return found


def _called(label: str, model: LanguageModel) -> LanguageModel:
    """The model of a preset or pool under its label; not to be saved."""
    shown = copy(model)
    shown.alias = label
    return shown


def _find(key: tuple[int, str]) -> Models:
    user_id, name = key
    user = get_user_model()._default_manager.get(pk=user_id)
    if name.startswith(preset_models.PREFIX):
        use, model = preset_models.load(name, user)
        return [_called(str(use.preset), model)]
    if (pool := find_pool(name, user)) is not None:
        return [_called(name, each.model) for each in pool.members.all()]
    route = router.resolve(name, user=user)
    assert route.model_id is not None, "names lead to rows"
    found = router.available(user).filter(pk=route.model_id).first()
    if found is None:
        raise ModelNotAvailable(
            f"There is no model {name!r}; choose another one.", param="model"
        )
    return [found]


_listed: Cache[int, dict[str, Models]] = clear_with_models(Cache(_list))
_named: Cache[tuple[int, str], Models] = clear_with_models(Cache(_find))
