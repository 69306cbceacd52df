"""Which requests may be answered from the cache, and the digest of equal requests."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from hashlib import sha256
from typing import Any

import orjson

from llm.generation.request_builder import OPTIONS
from llm.provider import Route
from llm.wire.forwarding.forwarded_body import ForwardedBody
from llm.wire.items import Item
from llm.wire.request import Request

VERSION = 1  # of the digest; another one makes all stored answers unreachable
#: Options that do not change the answer.
_WITHOUT_EFFECT = frozenset({"prompt_cache_key"})
_OPTIONS = sorted(OPTIONS - _WITHOUT_EFFECT)
#: Fields that differ between equal items: each client and each turn makes new ones.
_ITEM_FIELDS_IGNORED = frozenset({"id", "status"})


def is_cacheable(request: Request, safe_functions: Collection[str]) -> bool:
    """Whether the answer to this request may be stored, and sent again to equal ones.

    False if the answer is only a part (it goes on after a prefill, or resumes a
    response at the provider), if the model may call a tool of its provider or a
    function that is not in `safe_functions`, and if an item refers to something stored
    elsewhere.
    """
    if request.prefill or request.resumes:
        return False
    if not all(_is_safe(tool, safe_functions) for tool in request.tools):
        return False
    return not any(_refers_elsewhere(item) for item in request.items)


def digest_of(
    request: Request, route: Route, owner_id: int | None, leniency: str = ""
) -> str | None:
    """A hexadecimal digest of owner, model and request; None if the request contains
    what JSON cannot express.

    `leniency` describes which options may be left out of the request.
    """
    endpoint = route.endpoint
    described = {
        "version": VERSION,
        "owner": owner_id,
        "provider": route.provider_id,
        "model": [route.model_id, route.model, endpoint.codec.name],
        "address": endpoint.base_url,
        "settings": repr((endpoint.options, endpoint.headers, route.capabilities)),
        "leniency": leniency,
        "items": [_content_of(item) for item in request.items],
        "instructions": request.instructions,
        "tools": request.tools,
        "options": {name: getattr(request, name) for name in _OPTIONS},
    }
    if (body := request.forwarded) is not None:
        described["forwarded"] = _description_of(body)
    try:
        encoded = orjson.dumps(described, option=orjson.OPT_SORT_KEYS)
    except TypeError:
        return None
    return sha256(encoded).hexdigest()


def _description_of(body: ForwardedBody) -> dict[str, Any]:
    """The client's JSON but for the name of the model, which may be an alias."""
    ignored = _WITHOUT_EFFECT | {"model"}
    return {
        "api": body.api,
        "fields": {n: v for n, v in body.fields.items() if n not in ignored},
        "headers": dict(body.headers),
        "defaults": dict(body.defaults),
        "tools": body.own_tools,
        "frames": [body.wants_frames, body.hides_usage],
    }


def _is_safe(tool: dict[str, Any], safe_functions: Collection[str]) -> bool:
    return tool.get("type") == "function" and tool.get("name") in safe_functions


def _content_of(item: Item) -> Item:
    return {n: v for n, v in item.items() if n not in _ITEM_FIELDS_IGNORED}


def _refers_elsewhere(item: Item) -> bool:
    if item.get("type") == "item_reference":
        return True
    return any(map(_is_elsewhere, _parts(item)))


def _is_elsewhere(part: Any) -> bool:
    """Whether a part of a message or output names a file that may change."""
    if not isinstance(part, dict):
        return False
    addresses = (part.get("image_url"), part.get("file_url"))
    is_remote = any(str(url).startswith(("http:", "https:")) for url in addresses)
    return is_remote or bool(part.get("file_id"))


def _parts(item: Item) -> Iterable[Any]:
    for name in ("content", "output"):
        match item.get(name):
            case list() as parts:
                yield from parts
            case dict() as part:
                yield part
