"""Tool that tells the time in a time zone or city."""

from __future__ import annotations

import difflib
from contextlib import suppress
from datetime import datetime
from functools import cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from tools.errors import ToolError
from tools.registry import tool

_WEEKDAYS = (
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
    "Sunday",
)

_NOT_ZONES = {"Factory", "localtime", "posixrules"}  # not time zones


@tool(label="Current time", replay="safe")
async def current_time(timezone: str = "UTC") -> dict[str, str]:
    """Tell the current date and time in a time zone.

    Args:
        timezone: Name in the IANA time zone database, for example Europe/Paris.
    """
    now = datetime.now(_zone(timezone))
    return {
        "timezone": str(now.tzinfo),
        "time": now.isoformat(timespec="seconds"),
        "weekday": _WEEKDAYS[now.weekday()],
        "utc_offset": now.isoformat()[-6:],
    }


def _zone(name: str) -> ZoneInfo:
    with suppress(ValueError, OSError, ZoneInfoNotFoundError):  # not a valid path
        return ZoneInfo(name.strip())
    if known := _names().get(_key(name)):
        return ZoneInfo(known)
    close = difflib.get_close_matches(_key(name)[:64], _names(), n=1, cutoff=0.8)
    example = _city(name) or (_names()[close[0]] if close else "Europe/Paris")
    raise ToolError(
        f"{name[:64]!r} is not a time zone; use a name of the IANA database, for"
        f" example {example}."
    )


def _city(name: str) -> str:
    """The zone that is named after a city: Europe/Paris for "Paris"; "" for none."""
    found = [zone for key, zone in _names().items() if key.endswith(f"/{_key(name)}")]
    return min(found, key=len, default="")


def _key(name: str) -> str:
    return name.strip().replace(" ", "_").lower()


@cache
def _names() -> dict[str, str]:
    zones = {name for name in available_timezones() if name not in _NOT_ZONES}
    return {_key(name): name for name in sorted(zones)}
