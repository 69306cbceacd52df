"""The error of a storage of files that is not on this machine and does not answer."""

from __future__ import annotations

from llm.errors import TryAgain

RETRY_AFTER = 10.0  # seconds


class FilesUnavailable(TryAgain, OSError):
    """Stored files cannot be reached; nothing was lost. Try again in a moment.

    An LLMError, so that turns, REST and the gateway answer it; an OSError, as a disk
    would raise it. `reason`: what the storage answered, a word for staff.
    """

    code, status = "E_FILES_UNAVAILABLE", 503
    openai_code = "files_unavailable"

    def __init__(self, reason: str = "") -> None:
        super().__init__(retry_after=RETRY_AFTER)
        self.reason = reason
