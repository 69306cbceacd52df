"""Conversion of the SDK's exceptions to `tools.mcp.errors`. Loads the SDK.

Messages of the SDK are left out if they may quote addresses or user data.
"""

from __future__ import annotations

from collections.abc import Iterator

from mcp import MCPError
from mcp.client.auth import OAuthFlowError
from mcp_types import CONNECTION_CLOSED, URL_ELICITATION_REQUIRED
from pydantic import ValidationError

from tools.errors import BrokenAnswer, ToolError
from tools.mcp.errors import (
    CallFailed,
    CallRefused,
    ConnectionLost,
    McpConnectFailed,
    SignInFailed,
)
from tools.mcp.server_spec import ServerSpec

MAX_SERVER_TEXT = 500  # characters of a server's own message

#: The SDK's message for an HTTP error whose body is no protocol message.
_HTTP_ERROR_MESSAGE = "Server returned an error response"


def convert_connect_error(
    exc: BaseException, server: ServerSpec, status: int = 0
) -> ToolError:
    """Why no session was opened. `status`: of the last HTTP error, 0 for none."""
    for each in _leaves(exc):
        match each:
            case ToolError():
                return each
            case OAuthFlowError():
                return SignInFailed(
                    f"the sign-in at the tool's server failed ({type(each).__name__})."
                )
            case TimeoutError():
                return McpConnectFailed(
                    f"the tool's server did not answer within {server.timeout:g}"
                    " seconds."
                )
            case OSError() if server.program:
                return McpConnectFailed("the tool's server could not be started.")
            case MCPError() if status in (401, 403):
                return SignInFailed(f"the tool's server denied access (HTTP {status}).")
            case MCPError() if status:
                return McpConnectFailed(
                    f"the tool's server answered HTTP {status} to the initialization."
                )
            case MCPError():
                return McpConnectFailed(
                    f"the tool's server refused a session: {_server_text(each)}"
                )
    return McpConnectFailed(
        f"the connection to the tool's server failed ({_name(exc)})."
    )


def convert_call_error(exc: Exception, status: int = 0) -> ToolError:
    """Why a call in an open session failed.

    `status` is that of the last HTTP error, 0 for none.
    """
    for each in _leaves(exc):
        match each:
            case ToolError():
                return each
            case MCPError(code=code) if code == CONNECTION_CLOSED:
                return ConnectionLost()
            case MCPError(code=code) if code == URL_ELICITATION_REQUIRED:
                return CallRefused(
                    "the user must first open a page of the server:"
                    f" {_server_text(each)}"
                )
            case MCPError(message=message) if message == _HTTP_ERROR_MESSAGE and status:
                return CallFailed(
                    f"the tool's server answered HTTP {status}; what the call began may"
                    " still take effect."
                )
            case MCPError():
                return CallRefused(f"the tool's server says: {_server_text(each)}")
            case OAuthFlowError():
                return SignInFailed()
            case ValidationError():
                return BrokenAnswer("the tool's server violated the protocol.")
            case TimeoutError():
                return CallRefused("the tool's server took too long to list its tools.")
            case RuntimeError():  # the SDK raises it for a result that breaks a schema
                return BrokenAnswer(
                    "the tool's result does not match the schema that its server"
                    " declares."
                )
    return ConnectionLost()


def _leaves(exc: BaseException) -> Iterator[BaseException]:
    if isinstance(exc, BaseExceptionGroup):
        for each in exc.exceptions:
            yield from _leaves(each)
    else:
        yield exc


def _server_text(exc: BaseException) -> str:
    return str(exc)[:MAX_SERVER_TEXT]


def _name(exc: BaseException) -> str:
    return type(next(_leaves(exc), exc)).__name__
