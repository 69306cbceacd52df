"""The gateway's endpoints below `/v1`: the paths of the APIs that SDKs know, served
without Django. Every answer, errors included, has the shape of the caller's API.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Mapping

from django.utils import timezone

from conversations import engine
from conversations.access import admission, overload
from conversations.access.errors import TooFast
from conversations.engine.connection_revocation import Credential, open_connections
from conversations.gateway import stored, token_access
from conversations.gateway.dialects import CHAT, MESSAGES, RESPONSES, Dialect
from conversations.gateway.endpoints import (
    compaction,
    create,
    model_list,
    token_counting,
    usage,
)
from conversations.gateway.errors import (
    InternalServerError,
    Misdirected,
    NotAllowed,
    NotFound,
    ShuttingDown,
    unavailable_error,
)
from conversations.gateway.exchanges import idempotency, origins
from conversations.gateway.exchanges.request_logging import RequestLog
from conversations.gateway.http import Exchange, TokenRevoked
from conversations.gateway.loop_resources import resources
from conversations.gateway.request_context import Handler, RequestContext
from conversations.http.request_body import ClientDisconnected
from llm.errors import LLMError
from llm.wire.facades import errors

logger = logging.getLogger(__name__)

PREFIX = "/v1/"
#: Paths that clients request if their base URL lacks the prefix. No page uses them.
WITHOUT_PREFIX = re.compile(
    r"/(?:chat/completions|completions|embeddings|(?:messages|models|responses)(?:/.*)?)/?"
)
#: By the beginning of the path; for other paths the headers decide.
_DIALECTS = {
    "/v1/messages": MESSAGES,
    "/v1/chat/": CHAT,
    "/v1/responses": RESPONSES,
}


async def refuse_address(exchange: Exchange) -> None:
    """Answer a client whose base URL lacks `/v1`, in JSON instead of a sign-in page."""
    address = exchange.path[:64]
    exc = NotFound(
        f"There is no {address!r}; use '/v1{address}'. Base URLs of OpenAI's SDKs end"
        " with"
        " '/v1' here."
    )
    await _refuse(exchange, _dialect(exchange, "/v1"), exc)


async def refuse_elsewhere(exchange: Exchange, address: str) -> None:
    """Answer a request that another process serves, which is at `address`."""
    await _refuse(exchange, _dialect(exchange), Misdirected(address))


async def serve(exchange: Exchange) -> None:
    dialect = _dialect(exchange)
    if dialect.errors == "anthropic":  # the name that its SDKs read
        exchange.response_headers["request-id"] = exchange.id
    try:
        await _serve(exchange, dialect)
    except ClientDisconnected:
        return
    except TokenRevoked as exc:
        if exchange.started:
            await exchange.write(b"", last=True)
        else:
            await _refuse(exchange, dialect, exc)
    except Exception as exc:
        if isinstance(exc, LLMError) and not exchange.started:
            await _refuse(exchange, dialect, exc)
            return
        if (error := unavailable_error(exc)) and not exchange.started:
            logger.warning("request %s: %s", exchange.id, error.code)
            await _refuse(exchange, dialect, error)
            return
        logger.exception("request %s failed: %s", exchange.id, exchange.path)
        if exchange.started:
            raise  # the server then closes the connection: the answer is incomplete
        fault = InternalServerError(
            f"Internal error; the staff can find it in the log by the id {exchange.id}."
        )
        await _refuse(exchange, dialect, fault)
    finally:
        if exchange.log is not None:
            loop = asyncio.get_running_loop()
            exchange.log.write(resources.of[loop].write_queue)


async def _serve(exchange: Exchange, dialect: Dialect) -> None:
    methods, path_params = _match_endpoint(exchange.path)
    loop = asyncio.get_running_loop()
    shared_resources = resources.of[loop]
    if exchange.origin is not None:
        await origins.add_cors_headers(exchange, shared_resources.database)
        if origins.is_preflight(exchange):
            await origins.answer_preflight(exchange, ", ".join(sorted(methods)))
            return
    if exchange.method == "HEAD" and "GET" not in methods:
        await exchange.answer(200, None)
        return
    method = "GET" if exchange.method == "HEAD" else exchange.method
    if (handler := methods.get(method)) is None:
        allowed = ", ".join(sorted(methods))
        exchange.response_headers["allow"] = allowed
        raise NotAllowed(f"This address takes {allowed}, not {exchange.method}.")
    if shared_resources.engine_address and handler in _OF_STORED_RESPONSES:
        raise Misdirected(shared_resources.engine_address)
    if engine.draining.is_set():
        raise ShuttingDown
    # Read here, so that a request with room enters no function for it.
    if overload.load.excess and method == "POST" and handler is not stored.cancel:
        overload.check_room()
    token = await shared_resources.tokens.authenticate(exchange.headers)
    if exchange.origin is not None:
        origins.check_origin(exchange, token)
    if token.logs_requests_until and token.logs_requests_until > timezone.now():
        exchange.log = RequestLog(exchange, token)
    anthropic = dialect.errors == "anthropic"
    exchange.response_headers |= await token_access.admit_request(
        token, exchange.peer, exchange.headers, anthropic=anthropic
    )
    body = await exchange.json() if method == "POST" else {}
    if exchange.log is not None:
        exchange.log.model = str(body.get("model") or "")
    context = RequestContext(
        exchange, shared_resources, token, dialect, body, path_params
    )
    credential = Credential(token.user_id, token_id=token.pk)
    closing = [open_connections.of[loop].add(credential, exchange.revoke)]
    try:
        if (share_connection := shared_resources.share_connection) is not None:
            closing.append(await share_connection(token, method == "POST"))
        if method == "POST" and idempotency.HEADER in exchange.headers:
            await exchange.run_while_connected(
                idempotency.answer_once(context, handler)
            )
        else:
            await exchange.run_while_connected(handler(context))
    finally:
        for close in closing:
            close()


async def _refuse(exchange: Exchange, dialect: Dialect, exc: LLMError) -> None:
    headers = errors.headers_of(exc)
    if exc.status in (401, 403):
        _log_refusal(exchange, exc)
    if exc.status == 401:
        headers["www-authenticate"] = 'Bearer realm="api"'
    if isinstance(exc, TooFast) and exc.verdict:
        anthropic = dialect.errors == "anthropic"
        headers |= admission.rate_limit_headers(exc.verdict, anthropic=anthropic)
    status = dialect.status(exc)
    await exchange.answer(status, dialect.error(exc, exchange.id), headers)


def _log_refusal(exchange: Exchange, exc: LLMError) -> None:
    """Without the message, which may quote the request."""
    forwarded = exchange.headers.get(b"x-forwarded-for", b"").decode("latin-1")
    logger.warning(
        "refused %s %.100r from %s: %d %s, request %s",
        exchange.method,
        exchange.path,
        admission.client_address(exchange.peer, forwarded),
        exc.status,
        exc.openai_code or exc.code,
        exchange.id,
    )


def _dialect(exchange: Exchange, prefix: str = "") -> Dialect:
    path = prefix + exchange.path
    for path_prefix, dialect in _DIALECTS.items():
        if path.startswith(path_prefix):
            return dialect
    return MESSAGES if b"anthropic-version" in exchange.headers else RESPONSES


_OF_STORED_RESPONSES = (
    stored.retrieve,
    stored.delete,
    stored.cancel,
    stored.list_input_items,
)
_ENDPOINTS: list[tuple[re.Pattern[str], Mapping[str, Handler]]] = [
    (re.compile(path), handlers_by_method)
    for path, handlers_by_method in (
        ("/v1/chat/completions", {"POST": create.answer}),
        ("/v1/messages", {"POST": create.answer}),
        ("/v1/messages/count_tokens", {"POST": token_counting.count_tokens}),
        ("/v1/models", {"GET": model_list.list_models}),
        ("/v1/models/(?P<name>.+)", {"GET": model_list.get_model}),
        ("/v1/usage", {"GET": usage.report}),
        ("/v1/responses", {"POST": create.respond}),
        ("/v1/responses/compact", {"POST": compaction.compact}),
        ("/v1/responses/input_tokens", {"POST": token_counting.count_input_tokens}),
        (
            "/v1/responses/(?P<id>[^/]+)",
            {"GET": stored.retrieve, "DELETE": stored.delete},
        ),
        ("/v1/responses/(?P<id>[^/]+)/cancel", {"POST": stored.cancel}),
        ("/v1/responses/(?P<id>[^/]+)/input_items", {"GET": stored.list_input_items}),
    )
]


def _match_endpoint(path: str) -> tuple[Mapping[str, Handler], dict[str, str]]:
    """The handlers of a path by method, and its parameters. Raises NotFound."""
    for pattern, methods in _ENDPOINTS:
        if match := pattern.fullmatch(path.rstrip("/")):
            return methods, match.groupdict()
    if path.rstrip("/") == "/v1":
        return {}, {}
    if path.startswith("/v1/v1/"):
        raise NotFound(
            f"There is nothing at {path[:64]!r}; use {path[3:64]!r}. Base URLs of"
            " Anthropic's SDKs end without '/v1' here, those of OpenAI's with one."
        )
    raise NotFound(f"There is nothing at {path[:64]!r}; see docs/gateway.md.")
