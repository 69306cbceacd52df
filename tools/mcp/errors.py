"""Errors of MCP servers. Part of the tree of `tools.errors`.

* ToolError
    * McpError                  `advice` is for staff; messages are for the model
        * McpConnectFailed      no session could be opened
            * SignInFailed      the authorization server gave no token
                * SignInNeeded  the user whose call it is must sign in first
        * RenewalFailed         the authorization server renewed no token for now
            * RenewalRefused    nor will it, until staff correct the client
        * ConnectionLost        the session ended while a call ran
        * CallFailed            the server answered the call with an HTTP error
        * CallRefused           the server answered the call with a protocol error
        * ToolNotApproved       the tool is not the one that staff approved
"""

from __future__ import annotations

from tools.errors import ToolError


class McpError(ToolError):
    """The request to the tool's server failed."""

    advice = "Test the connection of this MCP server."


class McpConnectFailed(McpError):
    """The connection to the tool's server failed."""

    advice = "Check the address, and that the server runs."
    #: What its program wrote to stderr, for staff; no part of the message.
    startup_output = ""


class SignInFailed(McpConnectFailed):
    """The sign-in at the tool's server failed."""

    advice = "Sign in again; if that does not help, check the OAuth client."


class SignInNeeded(SignInFailed):
    """The user must sign in at the tool's server first: in a chat, or in the settings
    under Sign-ins."""

    advice = "Sign in yourself on the sign-in page of this MCP server."


class RenewalFailed(McpError):
    """The sign-in at the tool's server could not be renewed; try again later."""

    advice = "Check the authorization server and the OAuth client."


class RenewalRefused(RenewalFailed):
    """The sign-in at the tool's server could not be renewed; a member of staff must
    correct the OAuth client of this MCP server."""

    advice = "Trying again does not help: correct the OAuth client, here or there."


class ConnectionLost(McpError):
    """The connection to the tool's server was lost; what the call began may still take
    effect."""

    advice = "Check that the server runs."


class CallFailed(McpError):
    """The tool's server answered the call with an HTTP error; what the call began may
    still take effect."""


class CallRefused(McpError):
    """The tool's server refused the call."""


class ToolNotApproved(McpError):
    """The tool has changed at its server and waits for the staff's approval."""

    advice = "Review the changes of this MCP server's tools and approve them."


def to_connection_lost(failure: ToolError) -> ConnectionLost:
    """The failure of a session as an error for the calls in it."""
    return ConnectionLost(
        f"the connection to the tool's server was lost ({type(failure).__name__}); what"
        " the call began may still take effect."
    )
