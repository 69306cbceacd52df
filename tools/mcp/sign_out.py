"""Sign-out of an MCP server: deletes its tokens and revokes them.

Source: https://www.rfc-editor.org/rfc/rfc7009
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from asgiref.sync import async_to_sync

from llm.concurrency.thread_lending import lend_thread
from tools.errors import FetchTimeout
from tools.mcp.errors import SignInFailed
from tools.mcp.row_access import MemoryTokenStore
from tools.mcp.server_spec import AuthorizationCode, ServerSpec
from tools.models.mcp_server import McpServer
from tools.models.mcp_user_sign_in import McpUserSignIn

TIME_TO_REVOKE = 10.0  # seconds


def sign_out(row: McpServer | McpUserSignIn) -> bool:
    """Delete the tokens in any case, then revoke them at the authorization server.

    False if there is nothing to revoke or no revocation endpoint. Raises ToolError if
    revoking failed.
    """
    spec = row.spec
    try:
        state = _load_tokens(spec)
    finally:
        row.sign_out()
    with lend_thread():
        return async_to_sync(_revoke)(spec, state)


def _load_tokens(spec: ServerSpec) -> Mapping[str, Any]:
    if not isinstance(spec.oauth, AuthorizationCode):
        return {}
    return async_to_sync(spec.oauth.store.load)()


async def _revoke(spec: ServerSpec, state: Mapping[str, Any]) -> bool:
    if not isinstance(spec.oauth, AuthorizationCode):
        return False
    server = replace(
        spec, oauth=replace(spec.oauth, store=MemoryTokenStore(dict(state)))
    )
    try:
        async with asyncio.timeout(TIME_TO_REVOKE):
            return await _send_all(server)
    except TimeoutError as exc:
        raise FetchTimeout("the authorization server took too long.") from exc


async def _send_all(spec: ServerSpec) -> bool:
    import httpx2

    from tools.mcp.http_transport import GuardedTransport, Health
    from tools.mcp.oauth.auth import build_revocations

    transport = GuardedTransport(spec, Health())
    # Without the MCP server's headers: this is the authorization server.
    async with httpx2.AsyncClient(transport=transport, trust_env=False) as client:
        requests = await build_revocations(spec)
        answers = [await client.send(request) for request in requests]
    if refused := [a.status_code for a in answers if a.status_code != 200]:
        raise SignInFailed(f"the authorization server refused ({refused[0]}).")
    return bool(requests)
