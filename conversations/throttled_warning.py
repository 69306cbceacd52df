"""A warning that is logged at most once a minute, however often its cause returns."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable

PERIOD = 60.0  # seconds


class ThrottledWarning:
    """Logs a message once per period and drops repetitions.

    When Redis refuses writes, hundreds of writes a minute fail for the same reason, and
    their warnings would hide all others.
    """

    def __init__(
        self,
        logger: logging.Logger,
        message: str,
        *,
        period: float = PERIOD,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._logger = logger
        self._message = message
        self._period = period
        self._clock = clock
        self._logged_at = -math.inf

    def log(self, *args: object, exc_info: BaseException | None = None) -> None:
        now = self._clock()
        if now - self._logged_at < self._period:
            return
        self._logged_at = now
        self._logger.warning(self._message, *args, exc_info=exc_info)
