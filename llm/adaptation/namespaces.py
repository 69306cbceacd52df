"""Functions in namespaces, for hosts whose API has functions alone. Pure.

In: a request. Out: the same with one function for each member of a namespace, also in
the choice and the history, and for each new name the namespace and the name that the
client declares. Codex groups its functions so.

Source: https://platform.openai.com/docs/api-reference/responses/create
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Any

from llm.wire.codecs.anthropic.messages import wire_name
from llm.wire.deltas import Delta, ItemDelta, ToolCallDelta
from llm.wire.items import CALLS, Item
from llm.wire.request import Request, is_namespace, members_of

Member = tuple[str, str]  # a namespace, and a function's name in it
_MARK = "__"


def flatten(request: Request) -> tuple[Request, Mapping[str, Member]]:
    """The request itself if it has no namespaces."""
    declares = any(map(is_namespace, request.tools))
    if not declares and not any(item.get("namespace") for item in request.items):
        return request, {}
    taken = {str(tool.get("name")) for tool in request.tools}
    names: dict[Member, str] = {}
    for tool in filter(is_namespace, request.tools):
        for function in filter(_is_function, members_of(tool)):
            member = _member(tool, function)
            name = names.setdefault(member, _flat_name(member, taken))
            taken.add(name)
    flat = replace(
        request,
        tools=[each for tool in request.tools for each in _flatten(tool, names)],
        items=[_rename_call(item, names) for item in request.items],
        tool_choice=_choice(request.tool_choice, request.tools, names),
    )
    return flat, {name: member for member, name in names.items()}


def with_members_in_choice(request: Request) -> Request:
    """An allowed namespace in the choice becomes its functions, by which calls are
    checked."""
    choice = request.tool_choice
    if not isinstance(choice, dict) or choice.get("type") != "allowed_tools":
        return request
    if not any(map(is_namespace, choice["tools"])):
        return request
    members = {
        tool.get("name"): [*filter(_is_function, members_of(tool))]
        for tool in filter(is_namespace, request.tools)
    }
    tools: list[dict[str, Any]] = []
    for entry in choice["tools"]:
        name = entry.get("name")
        if is_namespace(entry) and name in members:
            tools += [
                {"type": each["type"], "name": each.get("name"), "namespace": name}
                for each in members[name]
            ]
        else:
            tools.append(entry)
    return replace(request, tool_choice={**choice, "tools": tools})


def restore(delta: Delta, members: Mapping[str, Member]) -> Delta:
    """A call with the namespace and the name that the client declares."""
    match delta:
        case ToolCallDelta() if delta.name in members:
            namespace, name = members[delta.name]
            return replace(delta, name=name, namespace=namespace)
        case ItemDelta(item={"type": "custom_tool_call", "name": str(flat)} as item):
            if flat in members:
                namespace, name = members[flat]
                named = {**item, "name": name, "namespace": namespace}
                return replace(delta, item=named)
    return delta


def _is_function(tool: Mapping[str, Any]) -> bool:
    return tool.get("type") in ("custom", "function")


def _member(namespace: Mapping[str, Any], function: Mapping[str, Any]) -> Member:
    return str(namespace.get("name")), str(function.get("name"))


def _flat_name(member: Member, taken: Collection[str]) -> str:
    """At most 64 characters, all of which every API takes, and not among `taken`."""
    joined = _join(member)
    if (name := wire_name(joined)) not in taken:
        return name
    digest = sha256("\0".join(member).encode(errors="replace")).hexdigest()[:8]
    return wire_name(f"{joined}.{digest}")  # the dot makes it hash the whole


def _join(member: Member) -> str:
    namespace, name = member
    return f"{namespace.removesuffix(_MARK)}{_MARK}{name}"


def _flatten(
    tool: dict[str, Any], names: Mapping[Member, str]
) -> Iterator[dict[str, Any]]:
    if not is_namespace(tool):
        yield tool
        return
    about = tool.get("description") or ""
    for function in members_of(tool):
        if not _is_function(function):  # the codec judges it
            yield function
            continue
        flat = {**function, "name": names[_member(tool, function)]}
        if about:  # the first function describes the others too
            note = f"About the tools of {tool.get('name')!r}: {about}"
            texts = [flat.get("description") or "", note]
            flat["description"] = "\n\n".join(filter(None, texts))
            about = ""
        yield flat


def _rename_call(item: Item, names: Mapping[Member, str]) -> Item:
    """A call may be of a member that this request no longer declares."""
    namespace = item.get("namespace")
    if not namespace or item.get("type") not in CALLS:
        return item
    member = (str(namespace), str(item["name"]))
    flat = names.get(member) or wire_name(_join(member))
    # The host's own call in `provider_data` has the flat name already.
    return {n: v for n, v in item.items() if n != "namespace"} | {"name": flat}


def _choice(
    choice: str | dict[str, Any] | None,
    tools: Sequence[dict[str, Any]],
    names: Mapping[Member, str],
) -> str | dict[str, Any] | None:
    if not isinstance(choice, dict):
        return choice
    if choice.get("type") == "allowed_tools":
        allowed = [
            each for tool in choice["tools"] for each in _chosen(tool, tools, names)
        ]
        return {**choice, "tools": allowed}
    [*chosen] = _chosen(choice, tools, names)
    if len(chosen) == 1:
        return chosen[0]
    return {"type": "allowed_tools", "mode": "required", "tools": chosen}


def _chosen(
    entry: dict[str, Any],
    tools: Sequence[dict[str, Any]],
    names: Mapping[Member, str],
) -> list[dict[str, Any]]:
    """The entry of a choice as it names the flat functions."""
    name, namespace = entry.get("name"), entry.get("namespace")
    if is_namespace(entry):
        flat = [each for (space, _), each in names.items() if space == name]
        return [{"type": "function", "name": each} for each in flat]
    if namespace is None and any(tool.get("name") == name for tool in tools):
        return [entry]
    flat = [
        each
        for (space, member), each in names.items()
        if member == name and namespace in (None, space)
    ]
    plain = {n: v for n, v in entry.items() if n != "namespace"}
    return [{**plain, "name": each} for each in flat] or [entry]
