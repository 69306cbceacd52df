"""WhiteNoise, which looks at the static files once for each test process.

Each `Client()` loads the middleware anew, and looking at 280 files took more than half
of the time of the requests that tests send.
"""

from __future__ import annotations

from whitenoise.middleware import WhiteNoiseMiddleware
from whitenoise.responders import StaticFile

_found: dict[str, StaticFile] = {}


class SharedWhiteNoiseMiddleware(WhiteNoiseMiddleware):
    def add_files_from_finders(self) -> None:
        if not _found:
            super().add_files_from_finders()
            _found.update(self.files)
        self.files.update(_found)
