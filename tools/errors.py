"""Errors of tools.

* ToolError                 its message is for the model, which may correct its call
    * InvalidArguments      the arguments do not fit the tool's parameters
    * UnusableOutput        what the tool returned cannot be shown to a model
    * ProcessEnded          the process of an isolated tool ended without a result
    * NoFreeThread          the call of a plain function has not begun
    * FetchError            nothing was fetched from the web; `advice` is for staff
        * AddressRefused    this tool may not connect to the address
        * Unreachable       no server answers at the address
        * FetchTimeout      the request took too long
        * AnswerTooLarge    the answer exceeds the tool's size limit
        * BrokenAnswer      the server did not send a complete HTTP answer
            * ConnectionBroken  the connection ended before the answer did
* InvalidTool               the code of a tool cannot be offered; raised at import
* InvalidDocument           a description of an API cannot be imported
"""

from __future__ import annotations


class ToolError(Exception):
    """The tool failed.

    Raise it in a tool, with a sentence that the model can act on: what was wrong, and
    what would be right.
    """

    def __init__(self, message: str = "") -> None:
        summary = (self.__doc__ or "").partition("\n\n")[0]
        super().__init__(message or " ".join(summary.split()))


class InvalidArguments(ToolError):
    """The arguments do not fit the tool's parameters."""


class UnusableOutput(ToolError):
    """The tool's result cannot be shown to a model."""


class ProcessEnded(ToolError):
    """The tool's process ended without a result."""


class NoFreeThread(ToolError):
    """The call has not begun: all threads for tools are in use, by tools that hang.
    Tell the staff."""


class FetchError(ToolError):
    """The request to the web server failed."""

    #: What staff can do about it. Neither the advice nor the message has an address.
    advice = "Correct the address of this tool."


class AddressRefused(FetchError):
    """The address leads into a private or reserved network, which is not allowed."""

    advice = "Correct the address, or allow its network for this tool."


class Unreachable(FetchError):
    """The web server cannot be reached."""

    advice = "Check the address, and that its server runs."


class FetchTimeout(FetchError):
    """The web server takes too long."""

    advice = "Check the server, or raise the timeout of this tool."


class AnswerTooLarge(FetchError):
    """The web server's answer is too large."""

    advice = "Request less data, or raise the size limit of this tool."


class BrokenAnswer(FetchError):
    """The web server's answer cannot be read."""

    advice = "Check the address: its server does not send valid HTTP."


class ConnectionBroken(BrokenAnswer):
    """The web server ended the connection before its answer."""

    advice = "Check that its server runs; one that restarts does this."


class InvalidTool(TypeError):
    """This function cannot be used as a tool."""


class InvalidDocument(ValueError):
    """This is not a readable OpenAPI document."""
