"""Where stored files are, and the error of a storage that does not answer."""

from __future__ import annotations

from django.core.files.storage import FileSystemStorage, default_storage

from llm.errors import TryAgain

RETRY_AFTER = 10.0  # seconds
RESTING = "resting"  # the reason, where the host was not asked


def are_local() -> bool:
    """Whether the files are on a disk of this machine, which answers at once."""
    return isinstance(default_storage, FileSystemStorage)


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

    @property
    def is_resting(self) -> bool:
        return self.reason == RESTING
