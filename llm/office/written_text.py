"""The text that is written from an Office file, up to a limit."""

from __future__ import annotations

CUT = "[The file is longer; only its beginning stands here.]"


class Full(Exception):
    """The limit is reached; the rest of the file need not be read."""


class WrittenText:
    def __init__(self, limit: int) -> None:
        self._left = limit - len(CUT) - 2  # bytes in UTF-8
        self._pieces: list[str] = []
        self.is_blank = True  # but for what names sheets and slides

    def write_name(self, text: str) -> None:
        """A heading of the program. Raises Full."""
        was_blank = self.is_blank
        self.write(text)
        self.is_blank = was_blank

    def write(self, text: str) -> None:
        """Raises Full, after as much as there is room for."""
        encoded = text.encode(errors="replace")
        if len(encoded) > self._left:
            fitting = encoded[: max(0, self._left)].decode(errors="ignore")
            self._pieces += [fitting, f"\n{CUT}\n"]
            raise Full
        self._left -= len(encoded)
        self._pieces.append(text)
        self.is_blank = self.is_blank and not text.strip()

    def __str__(self) -> str:
        return "".join(self._pieces).strip() + "\n"
