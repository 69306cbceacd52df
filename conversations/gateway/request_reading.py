"""Turn a request's body into a `GatewayRequest`: a model and what to send to it.

`llm.wire.facades` reads the client's format. This module then fits the request to its
model: it adds the staff's default options and the server's own tools that the caller
names, and removes what only hosts of another API understand.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from conversations.engine.database.executor import Database
from conversations.gateway import model_resolution
from conversations.gateway.dialects import UNREADABLE, Dialect, unreadable_body
from conversations.gateway.encrypted_reasoning import restore_proofs
from conversations.gateway.forwarding import other_models
from conversations.gateway.forwarding.body import forwarded_body
from conversations.gateway.gateway_request import (
    NO_OPTIONS,
    TAGS_HEADER,
    GatewayRequest,
    ParleyOptions,
    speaks_dialect,
    tags_of,
)
from conversations.gateway.input_references import refuse_foreign
from conversations.gateway.preset_models import PresetUse
from conversations.gateway.proofs.native_history import unseal_history
from conversations.gateway.proofs.sealed_answers import open_seal
from conversations.gateway.request_tools import (
    NO_TOOLS,
    OWN_TOOLS,
    check_kinds,
    own_names,
    read_tools,
    split_tools,
    with_search_choice,
    without_unsupported,
)
from conversations.models import AccessToken
from conversations.turns.all_except import AllExcept
from llm.adaptation.namespaces import with_members_in_choice
from llm.errors import BadRequest, LLMError
from llm.generation.request_builder import OPTIONS, RequestBuilder
from llm.options import UNSET_VALUES
from llm.provider import Route
from llm.wire.facades.losses import has_seals
from llm.wire.facades.request_conversion import portable
from llm.wire.forwarding.forwarded_body import ForwardedBody
from llm.wire.items import Item
from llm.wire.request import Request, single_tools
from tools.hosted.declared_kinds import (
    DECLARING_FIELDS,
    kinds_of_body,
    kinds_of_tools,
)
from tools.hosted.unreported_content import (
    may_add_content,
    may_search_by_name,
)
from tools.loop.untrusted_content import has_untrusted_content

_ANY = AllExcept()
_NO_REQUEST = Request(model="", items=())
_NO_HEADERS: Mapping[bytes, bytes] = {}

#: Fields that this server serves itself; a host of the same API gets all others.
_SERVED = {
    "chat": frozenset({"audio", "n", "store", "stream_options"}),
    "messages": frozenset({"thread"}),
    "responses": frozenset(
        {
            "background",
            "conversation",
            "previous_response_id",
            "stream_options",
        }
    ),
}


#: Fields of the three APIs with the conversation, and what reading it needs besides.
_CONVERSATION = ("model", "max_tokens", "messages", "input")
#: Fields by which a host adds content that others wrote before it answers, so that no
#: item of the answer shows it.
_ADDED_CONTENT = frozenset(
    {
        "compound_custom",  # Groq
        "data_sources",  # Azure
        "documents",  # Cohere
        "enable_search",  # Qwen
        "plugins",  # OpenRouter
        "search_parameters",  # xAI
        "search_settings",  # Groq
        "web_search_options",
    }
)
#: Fields of the three APIs that say which tools are called, and how an answer is sent.
_OF_LOOP = frozenset(
    {
        "model",
        "parallel_tool_calls",
        "stop_sequences",
        "stream",
        "stream_options",
        "tool_choice",
        "tools",
    }
)


async def read_request(
    body: dict[str, Any],
    dialect: Dialect,
    token: AccessToken,
    database: Database,
    headers: Mapping[bytes, bytes] = _NO_HEADERS,
    request_id: str = "",
    *,
    may_forward: bool = False,
) -> GatewayRequest:
    """Parse `body` and resolve its model and tools. Raises LLMError.

    With `may_forward` the client's own body is sent to a host of its API; the answer
    is then a `forwarding.answer.ForwardedResponse`.
    """
    named = own_names(body["tools"]) if body.get("tools") else ()
    try:
        chain = await model_resolution.find_chain(body, token, database)
    except LLMError:
        dialect.check(body, server_tools=named)  # says first what else is wrong
        raise
    names_own = bool(body.get("tools")) and _names_own(body)
    gateway_request = _start_request(
        body, dialect, token, chain, headers, request_id, names_own=names_own
    )
    if not other_models.FIELDS.isdisjoint(body) or body.get("tools"):
        alternatives = await _find_alternatives(body, token, chain, database)
        gateway_request = replace(gateway_request, alternatives=alternatives)
    forwarded: ForwardedBody | None = None
    # Which options are invalid is found in the canonical request.
    ignores_options = gateway_request.parley_options.ignore_invalid_options
    if may_forward and gateway_request.host_speaks_dialect and not ignores_options:
        gateway_request, forwarded, skipped = _find_forwarded(
            gateway_request, body, headers
        )
        use = gateway_request.chain.preset
        is_written_anew = names_own or gateway_request.parley_options.changes_answers
        if use is not None and _changes_answers(use, dialect, token):
            is_written_anew = True
        if forwarded and not is_written_anew:
            return await _forward_whole(
                gateway_request, body, forwarded, skipped, database
            )
    if forwarded is None:
        gateway_request = _check_body(gateway_request, body, headers, named)
        # Responses that are stored, or come over a WebSocket, have them in `extra`.
        keeps_fields = dialect.is_open_responses
        gateway_request = replace(gateway_request, keeps_fields=keeps_fields)
    return await _read_for_tool_loop(gateway_request, body, forwarded, database)


def _start_request(
    body: dict[str, Any],
    dialect: Dialect,
    token: AccessToken,
    chain: model_resolution.ModelChain,
    headers: Mapping[bytes, bytes],
    request_id: str,
    *,
    names_own: bool,
) -> GatewayRequest:
    """The request with its model and Parley's own options; the rest of its body is not
    checked yet. Raises BadRequest."""
    model_body = {
        name: value for name, value in body.items() if not name.startswith("parley")
    }
    parley_options = NO_OPTIONS
    if len(model_body) < len(body) or names_own:
        dialect.check_own_fields(body)
        parley_options = ParleyOptions.of(body)
    route = chain.routes[0]
    if route.replaces:  # the answer names the model that gives it
        model_body["model"] = route.name
    return GatewayRequest(
        dialect=dialect,
        token=token,
        body=model_body,
        parley_options=parley_options,
        chain=chain,
        route=route,
        host_speaks_dialect=speaks_dialect(dialect, route),
        request=_NO_REQUEST,
        request_id=request_id,
        client_request_id=headers.get(b"x-request-id", b"").decode("latin-1"),
        tags=tags_of(parley_options, headers)
        if parley_options.tags or TAGS_HEADER in headers
        else "",
    )


async def _find_alternatives(
    body: dict[str, Any],
    token: AccessToken,
    chain: model_resolution.ModelChain,
    database: Database,
) -> Sequence[Route] | None:
    """The models that may answer instead of `model`; None if the body names none.
    Raises LLMError, also for a model that may only be asked for advice."""
    if advisors := other_models.find_advisors(body.get("tools")):
        await model_resolution.find_alternatives(advisors, token, chain, database)
    named = other_models.find_alternatives(body)
    if not named:
        return None
    found = await model_resolution.find_alternatives(named, token, chain, database)
    limits = [each.max_output_tokens for each in (*chain.routes, *found)]
    if chain.preset is not None:
        limits.append(chain.preset.preset.max_tokens)
    known = [limit for limit in limits if limit is not None]
    highest = other_models.highest_output_limit(body)
    if known and highest is not None:
        where, wanted = highest
        if not isinstance(wanted, int) or wanted > min(known):
            text = f"{where}: expected a number of at most {min(known)}."
            raise BadRequest(text, param=where)
    return found


def _find_forwarded(
    gateway_request: GatewayRequest,
    body: dict[str, Any],
    headers: Mapping[bytes, bytes],
) -> tuple[GatewayRequest, ForwardedBody | None, Sequence[str]]:
    """The body that is sent as it is, or None if the model's host does not take it; the
    request with its seals opened then; and the tools that are skipped. Raises
    BadRequest."""
    dialect, route = gateway_request.dialect, gateway_request.route
    model_body, user_id = gateway_request.body, gateway_request.token.user_id
    dialect.refuse_served(body)
    opened: Mapping[str, Any] = model_body
    if not dialect.is_open_responses and has_seals(dialect.name, body):
        opened = unseal_history(model_body, dialect, route, user_id)
    sent, skipped = without_unsupported(opened, dialect, route)
    convert = partial(_convert, body, model_body, dialect, user_id)
    forwarded = forwarded_body(sent, dialect, route, headers, convert)
    if forwarded is not None:
        gateway_request = replace(gateway_request, body=opened)
    return gateway_request, forwarded, skipped


def _check_body(
    gateway_request: GatewayRequest,
    body: dict[str, Any],
    headers: Mapping[bytes, bytes],
    server_tools: Collection[str],
) -> GatewayRequest:
    """Check a body that is not forwarded. Raises BadRequest. The request has an older
    version of its model if the body wants one."""
    dialect = gateway_request.dialect
    checked = body
    if dialect.is_open_responses and gateway_request.host_speaks_dialect:
        # Its host has the prompts that it stores.
        checked = {name: value for name, value in body.items() if name != "prompt"}
    dialect.check(checked, server_tools=server_tools)
    if dialect.is_open_responses:
        refuse_foreign(body.get("input"))
    if not dialect.wants_older_version(body, headers):
        return gateway_request
    chain = model_resolution.use_older_version(gateway_request.chain)
    return replace(gateway_request, chain=chain, route=chain.routes[0])


def _changes_answers(use: PresetUse, dialect: Dialect, token: AccessToken) -> bool:
    """Whether the client of a preset gets another answer than the host's bytes."""
    # An answer of Responses repeats the instructions, which are the preset's too.
    return dialect.is_open_responses or bool(use.tools_beside((), token))


async def _forward_whole(
    gateway_request: GatewayRequest,
    body: Mapping[str, Any],
    forwarded: ForwardedBody,
    skipped: Sequence[str],
    database: Database,
) -> GatewayRequest:
    """The request of a body that is sent as it is: the host reads all of it."""
    if isinstance(body.get("input"), list) or not DECLARING_FIELDS.isdisjoint(body):
        await check_kinds(body, None, gateway_request.token, database)
    request = Request(
        model=gateway_request.route.model,
        items=(),
        stream=body.get("stream") is True,
        issuer=gateway_request.route.issuer,
        forwarded=forwarded,
    )
    if (use := gateway_request.chain.preset) is not None:
        request = use.apply(request)
    return replace(gateway_request, request=request, skipped_tools=skipped)


async def _read_for_tool_loop(
    gateway_request: GatewayRequest,
    body: dict[str, Any],
    forwarded: ForwardedBody | None,
    database: Database,
) -> GatewayRequest:
    """The request in canonical form, with the server's tools. Of a body that is
    `forwarded`, it has what concerns the loop; the host reads the rest."""
    dialect, token = gateway_request.dialect, gateway_request.token
    chain, route = gateway_request.chain, gateway_request.route
    model_body = dict(gateway_request.body)
    if forwarded is not None:
        dialect.check_answer(model_body)
        model_body = _only_tools(model_body)
    tools = NO_TOOLS
    if body.get("tools"):
        tools = await read_tools(body, dialect, route, token, database)
        model_body["tools"] = tools.of_client
    request, lost = _parse(model_body, dialect, route, token.user_id)
    if (
        request.tools
        or isinstance(body.get("input"), list)
        or not DECLARING_FIELDS.isdisjoint(body)
    ):
        await check_kinds(body, request.tools, token, database)
    # A function that the client declares replaces a server tool of the same name.
    tools_of_client = single_tools(request.tools) if request.tools else ()
    client_names = {tool.get("name") for tool in tools_of_client}
    own_tools = {
        name: tool for name, tool in tools.own.items() if name not in client_names
    }
    if chain.preset is not None:
        own_tools = chain.preset.tools_beside(client_names, token) | own_tools
    definitions = [tool.definition for tool in own_tools.values()]
    request = _with_tools(request, [*request.tools, *definitions])
    if forwarded is not None:
        fields = forwarded.fields
        if dialect.reports_stop_sequence:  # found here, to report which one ended it
            fields = {n: v for n, v in fields.items() if n != "stop_sequences"}
        forwarded = replace(
            forwarded, fields=fields, own_tools=definitions, wants_frames=False
        )
        request = replace(request, forwarded=forwarded)
    if chain.preset is not None:
        request = chain.preset.apply(request)
    return replace(
        gateway_request,
        body=model_body if forwarded is None else gateway_request.body,
        request=request,
        own_tools=own_tools,
        skipped_tools=tools.skipped,
        lost_options=lost,
    )


def _only_tools(body: Mapping[str, Any]) -> dict[str, Any]:
    """What of a forwarded body concerns the loop: the host reads the conversation."""
    few = {name: value for name, value in body.items() if name in _OF_LOOP}
    return {**few, "messages": [], "input": []}


def has_untrusted_input(gateway_request: GatewayRequest) -> bool:
    """Whether others may have written part of the conversation. One that is forwarded
    is read for this; what cannot be read here counts."""
    if _may_host_add_content(gateway_request):
        return True
    request, items = gateway_request.request, gateway_request.request.items
    if request.forwarded is not None:
        body, dialect = gateway_request.body, gateway_request.dialect
        words = {name: body[name] for name in _CONVERSATION if name in body}
        opener = partial(
            open_seal, gateway_request.token.user_id, [], dialect.proof_field
        )
        try:
            items = dialect.request_of(words, gateway_request.route, opener).items
        except (LLMError, LookupError, TypeError, ValueError, AttributeError):
            return True
    return has_untrusted_content(items, gateway_request.own_tools)


def _is_switched_on(value: Any) -> bool:
    """False for a field that says that nothing is added."""
    if isinstance(value, Mapping):
        return value.get("mode") != "off"
    return value is not None and value is not False and value != []


def _may_host_add_content(gateway_request: GatewayRequest) -> bool:
    """Whether the host may search, say, without an item in its answer that shows it."""
    body, tools = gateway_request.body, gateway_request.request.tools
    if any(_is_switched_on(body[name]) for name in _ADDED_CONTENT & body.keys()):
        return True
    if not other_models.FIELDS.isdisjoint(body):
        named = other_models.find_alternatives(body)
        if any(may_search_by_name(name) for _, name in named):
            return True
    kinds = {kind for kind, _ in (*kinds_of_body(body), *kinds_of_tools(tools))}
    routes = gateway_request.chain.routes
    return any(may_add_content(route, kinds) for route in routes)


def _convert(
    body: Mapping[str, Any],
    model_body: Mapping[str, Any],
    dialect: Dialect,
    user_id: int,
    route: Route,
) -> Request:
    """A body that was to be forwarded, in canonical form. Raises BadRequest."""
    dialect.check(body)
    if dialect.is_open_responses:
        refuse_foreign(body.get("input"))
    converted = dict(model_body)
    if body.get("tools"):
        _, converted["tools"], _ = split_tools(body["tools"], dialect, route)
    request, _ = _parse(converted, dialect, route, user_id)
    return _with_tools(request, request.tools)


def _parse(
    model_body: dict[str, Any], dialect: Dialect, route: Route, user_id: int
) -> tuple[Request, list[str]]:
    """The request, and the fields that the API of its host does not have. Raises
    BadRequest."""
    lost: list[str] = []
    opener = partial(open_seal, user_id, lost, dialect.proof_field)
    try:
        request = dialect.request_of(model_body, route, opener)
    except UNREADABLE as exc:
        raise unreadable_body(exc) from exc
    if dialect.is_open_responses and any(
        item.get("type") == "reasoning" for item in request.items
    ):
        items = restore_proofs(request.items, model_body.get("input"), user_id, lost)
        request = replace(request, items=items)
    if not speaks_dialect(dialect, route) and (
        request.tools or request.extra or request.reasoning
    ):
        request, options = portable(request, hosted_tools=_ANY)  # already removed
        request, lost = with_search_choice(request, route), [*lost, *options]
        request = with_members_in_choice(request)
    if route.endpoint.codec.name.startswith("openai_chat"):
        items = [_join_text_parts(item) for item in request.items]
        request = replace(request, items=items)
    served_fields = _SERVED[dialect.name]
    extra = dict(route.defaults.get("extra") or {})
    extra |= {n: v for n, v in request.extra.items() if n not in served_fields}
    chosen = {name: getattr(request, name) for name in OPTIONS}
    chosen = {
        name: value for name, value in chosen.items() if value not in UNSET_VALUES
    }
    return RequestBuilder(route).build(request, {**chosen, "extra": extra}), lost


def _join_text_parts(item: Item) -> Item:
    """Join text parts, because hosts of Chat Completions put newlines between them."""
    parts = item.get("content")
    if item.get("role") == "assistant" or not isinstance(parts, list):
        return item
    if len(parts) < 2 or any(part.get("type") != "input_text" for part in parts):
        return item
    text = "".join(part["text"] for part in parts)
    return {**item, "content": [{"type": "input_text", "text": text}]}


def _names_own(body: Mapping[str, Any]) -> bool:
    """Whether a tool of the body stands for tools of this server."""
    tools = body.get("tools")
    return isinstance(tools, list) and any(
        isinstance(tool, dict) and tool.get("type") == OWN_TOOLS for tool in tools
    )


def _with_tools(request: Request, offered: Sequence[dict[str, Any]]) -> Request:
    """The request with the tools `offered`; without any, `tool_choice` is removed.

    With `tool_choice` "none" no tool is sent, unless the history has calls: the model
    needs the definitions to understand them.
    """
    called = any(item.get("type") == "function_call" for item in request.items)
    if request.tool_choice == "none" and not called:
        offered = ()
    if offered:
        return replace(request, tools=offered)
    if (*request.tools, request.tool_choice, request.parallel_tool_calls) == (
        None,
    ) * 2:
        return request  # nothing changes, and a copy costs more than the check
    return replace(request, tools=(), tool_choice=None, parallel_tool_calls=None)
