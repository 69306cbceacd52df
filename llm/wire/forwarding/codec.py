"""A client's own body, for a host that speaks the client's API.

In: the JSON of a request. Out: the same JSON for the host, with the few fields changed
that the host's codec has to change (`ForwardingCodec.forward`). What the codec does not
know, it does not touch.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Protocol, runtime_checkable

from llm.wire.forwarding.forwarded_body import OUTPUT_LIMITS
from llm.wire.items import user_message
from llm.wire.request import Request

#: Fields that set one thing together: a default of one would change the others.
_GROUPS = (
    frozenset(OUTPUT_LIMITS),
    frozenset({"output_config", "thinking"}),
    frozenset({"reasoning", "reasoning_effort"}),
    frozenset({"random_seed", "seed"}),
)
#: Fields that no default replaces.
_NO_DEFAULTS = frozenset(
    {
        "include",
        "input",
        "instructions",
        "messages",
        "model",
        "store",
        "tool_choice",
        "stream",
        "stream_options",
        "system",
        "tools",
    }
)


@runtime_checkable
class ForwardingCodec(Protocol):
    """A codec of an API that clients use too."""

    def encode(self, request: Request) -> dict[str, Any]: ...

    def forward(self, request: Request) -> dict[str, Any]:
        """The JSON body for `request.forwarded`."""
        ...


def body_of(request: Request) -> dict[str, Any]:
    """A copy of the client's body, with the model's name at the host."""
    assert request.forwarded is not None, "the caller has checked"
    return {**request.forwarded.fields, "model": request.model}


def add_to_body(
    body: dict[str, Any], request: Request, codec: ForwardingCodec, entries: str
) -> dict[str, Any]:
    """Add what is not the client's: options that staff have set, where the client set
    none, and this server's tools with what they have answered.

    `entries` is the name of the field that holds the conversation.
    """
    forwarded = request.forwarded
    assert forwarded is not None, "the caller has checked"
    defaults = dict(forwarded.defaults)
    if request.max_output_tokens is not None:
        defaults.setdefault("max_output_tokens", request.max_output_tokens)
    if not (defaults or forwarded.own_tools):
        return body
    added = Request(
        model=request.model,
        items=[user_message("?"), *forwarded.answered],
        tools=forwarded.own_tools,
        tool_choice="auto" if forwarded.answered and forwarded.own_tools else None,
        stream=request.stream,
        issuer=request.issuer,
        **defaults,
    )
    encoded = codec.encode(added)
    names = [n for n in encoded.keys() - _NO_DEFAULTS if not _is_set(n, body)]
    body |= {name: encoded[name] for name in names}  # two of a group set one thing
    if forwarded.own_tools:
        _add_tools(body, encoded)
    if forwarded.answered:
        body[entries] = [*_as_list(body.get(entries)), *encoded[entries][1:]]
        _free_choice(body)
    return body


def _add_tools(body: dict[str, Any], encoded: Mapping[str, Any]) -> None:
    clients = [tool for tool in body.get("tools") or () if not _is_own(tool)]
    body["tools"] = [*clients, *(encoded.get("tools") or ())]


def _is_own(tool: Any) -> bool:
    kind = tool.get("type") if isinstance(tool, dict) else None
    return isinstance(kind, str) and kind.startswith("parley:")


def _free_choice(body: dict[str, Any]) -> None:
    """A tool was called, as was required; from now on the model decides."""
    match body.get("tool_choice"):
        case {"type": "any" | "tool", **rest}:
            others = {n: v for n, v in rest.items() if n != "name"}
            body["tool_choice"] = {**others, "type": "auto"}
        case {"type": "allowed_tools", "allowed_tools": {"mode": _} as allowed}:
            free = {**allowed, "mode": "auto"}
            body["tool_choice"] = {"type": "allowed_tools", "allowed_tools": free}
        case {"type": "allowed_tools", **limited}:  # in Responses it is flat
            body["tool_choice"] = {
                "type": "allowed_tools",
                **limited,
                "mode": "auto",
            }
        case "any" | "required" | {"type": "function" | "custom"}:
            body["tool_choice"] = "auto"


def _as_list(value: Any) -> list[Any]:
    if isinstance(value, str):
        return [{"role": "user", "content": value}]
    return list(value or ())


def _is_set(name: str, body: Mapping[str, Any]) -> bool:
    group: Collection[str] = next((g for g in _GROUPS if name in g), (name,))
    return any(each in body for each in group)


def change_objects(value: Any, change: Callable[[dict[str, Any]], Any]) -> Any:
    """A list with `change` made to each object in it; None removes the object.

    The same list if nothing changes.
    """
    if not isinstance(value, list):
        return value
    changed = [change(each) if isinstance(each, dict) else each for each in value]
    if all(new is old for new, old in zip(changed, value, strict=True)):
        return value
    return [each for each in changed if each is not None]
