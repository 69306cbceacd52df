"""`GET /v1/models`: the models that a token may use, in the shape of the caller's API.

Source: https://platform.openai.com/docs/api-reference/models
Source: https://platform.claude.com/docs/en/api/models-list
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import unquote

from django.contrib.auth import get_user_model

from conversations.admission import check_model
from conversations.gateway.cache import Cache
from conversations.gateway.dialects import MESSAGES
from conversations.gateway.door import Visit
from conversations.gateway.routes import forgotten_with_models
from llm import router
from llm.errors import ModelNotAvailable
from llm.models import LanguageModel

Shape = Callable[[str, LanguageModel], dict[str, Any]]


async def models(visit: Visit) -> None:
    listed = await _listed.get(visit.token.user_id, visit.means.database)
    found = {n: row for n, row in listed.items() if visit.token.may_ask(row.pk)}
    shape = _shape(visit)
    data = [shape(name, model) for name, model in found.items()]
    if visit.dialect is MESSAGES:
        page = {
            "data": data,
            "has_more": False,
            "first_id": data[0]["id"] if data else None,
            "last_id": data[-1]["id"] if data else None,
        }
        await visit.exchange.answer(200, page)
    else:
        await visit.exchange.answer(200, {"object": "list", "data": data})


async def model(visit: Visit) -> None:
    """One model, by any name that a request may use for it."""
    name = unquote(visit.named["name"])
    key = visit.token.user_id, name
    found = await _named.get(key, visit.means.database)
    check_model(visit.token, found.pk, name)
    await visit.exchange.answer(200, _shape(visit)(name, found))


def _shape(visit: Visit) -> Shape:
    return _anthropic if visit.dialect is MESSAGES else _openai


def _openai(name: str, model: LanguageModel) -> dict[str, Any]:
    return {
        "id": name,
        "object": "model",
        "created": int(model.created_at.timestamp()),
        "owned_by": model.provider.name,
        "display_name": model.public_name,
        "capabilities": router.capabilities(model).told(),
    }


def _anthropic(name: str, model: LanguageModel) -> dict[str, Any]:
    told = router.capabilities(model).told()
    return {
        "type": "model",
        "id": name,
        "display_name": model.public_name,
        "created_at": model.created_at.isoformat().replace("+00:00", "Z"),
        "max_input_tokens": told.get("context_window"),
        "max_tokens": told.get("max_output_tokens"),
        "capabilities": told,
    }


def _list(user_id: int) -> dict[str, LanguageModel]:
    """Models by alias, by `provider/model`, and by bare name if that is unique."""
    user = get_user_model()._default_manager.get(pk=user_id)
    available = list(router.available(user).order_by("provider__name", "name"))
    names = [model.name for model in available]
    found = {}
    for model in available:
        found[model.public_name] = model
    for model in available:
        found.setdefault(model.full_name, model)
        if names.count(model.name) == 1:
            found.setdefault(model.name, model)
    return found


def _find(key: tuple[int, str]) -> LanguageModel:
    user_id, name = key
    user = get_user_model()._default_manager.get(pk=user_id)
    route = router.resolve(name, user=user)
    assert route.model_id is not None, "names lead to rows"
    found = router.available(user).filter(pk=route.model_id).first()
    if found is None:
        raise ModelNotAvailable(
            f"There is no model {name!r}; choose another one.", param="model"
        )
    return found


_listed: Cache[int, dict[str, LanguageModel]] = forgotten_with_models(Cache(_list))
_named: Cache[tuple[int, str], LanguageModel] = forgotten_with_models(Cache(_find))
