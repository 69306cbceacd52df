"""Everything that can go wrong with a tool.

* ToolError                 its message is for the model, which may mend its call
    * InvalidArguments      the arguments do not fit the tool's parameters
    * UnusableOutput        what the tool returned cannot be shown to a model
* InvalidTool               the code of a tool cannot be offered; raised at import
"""

from __future__ import annotations


class ToolError(Exception):
    """The tool could not do this.

    Raise it in a tool, with a sentence that the model can act on: what was wrong, and
    what would be right.
    """

    def __init__(self, message: str = "") -> None:
        super().__init__(message or (self.__doc__ or "").partition("\n")[0])


class InvalidArguments(ToolError):
    """The arguments do not fit the tool's parameters."""


class UnusableOutput(ToolError):
    """The tool's result cannot be shown to a model."""


class InvalidTool(TypeError):
    """This function cannot be offered as a tool."""
