"""What a tool prints, in lines that cannot pass for lines of the log. Pure."""

from __future__ import annotations


class PrintedLines:
    """Puts a name before each line of a text that arrives in pieces."""

    def __init__(self, name: str) -> None:
        self._prefix = f"{name}: "
        self._is_new_line = True

    def add(self, text: str) -> str:
        """The piece as it is printed. A carriage return would hide the name on a
        terminal, so it ends a line as well."""
        printed = []
        for line in text.replace("\r", "\n").splitlines(keepends=True):
            printed.append(self._prefix + line if self._is_new_line else line)
            self._is_new_line = line.endswith("\n")
        return "".join(printed)

    def end(self) -> str:
        """Ends the last line, on which the log would else go on."""
        return "" if self._is_new_line else "\n"
