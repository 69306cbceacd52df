"""Cities with their time zones, and a search for them in a question. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

ZONES = {
    "Amsterdam": "Europe/Amsterdam",
    "Athens": "Europe/Athens",
    "Auckland": "Pacific/Auckland",
    "Bangkok": "Asia/Bangkok",
    "Barcelona": "Europe/Madrid",
    "Beijing": "Asia/Shanghai",
    "Berlin": "Europe/Berlin",
    "Buenos Aires": "America/Argentina/Buenos_Aires",
    "Cairo": "Africa/Cairo",
    "Cape Town": "Africa/Johannesburg",
    "Chicago": "America/Chicago",
    "Copenhagen": "Europe/Copenhagen",
    "Delhi": "Asia/Kolkata",
    "Dubai": "Asia/Dubai",
    "Dublin": "Europe/Dublin",
    "Hamburg": "Europe/Berlin",
    "Helsinki": "Europe/Helsinki",
    "Hong Kong": "Asia/Hong_Kong",
    "Istanbul": "Europe/Istanbul",
    "Jakarta": "Asia/Jakarta",
    "Johannesburg": "Africa/Johannesburg",
    "Kyiv": "Europe/Kyiv",
    "Lagos": "Africa/Lagos",
    "Lima": "America/Lima",
    "Lisbon": "Europe/Lisbon",
    "London": "Europe/London",
    "Los Angeles": "America/Los_Angeles",
    "Madrid": "Europe/Madrid",
    "Melbourne": "Australia/Melbourne",
    "Mexico City": "America/Mexico_City",
    "Montreal": "America/Toronto",
    "Moscow": "Europe/Moscow",
    "Mumbai": "Asia/Kolkata",
    "Munich": "Europe/Berlin",
    "Nairobi": "Africa/Nairobi",
    "New York": "America/New_York",
    "Oslo": "Europe/Oslo",
    "Paris": "Europe/Paris",
    "Prague": "Europe/Prague",
    "Reykjavik": "Atlantic/Reykjavik",
    "Rome": "Europe/Rome",
    "San Francisco": "America/Los_Angeles",
    "Santiago": "America/Santiago",
    "São Paulo": "America/Sao_Paulo",
    "Seattle": "America/Los_Angeles",
    "Seoul": "Asia/Seoul",
    "Shanghai": "Asia/Shanghai",
    "Singapore": "Asia/Singapore",
    "Stockholm": "Europe/Stockholm",
    "Sydney": "Australia/Sydney",
    "Tokyo": "Asia/Tokyo",
    "Toronto": "America/Toronto",
    "Vancouver": "America/Vancouver",
    "Vienna": "Europe/Vienna",
    "Warsaw": "Europe/Warsaw",
    "Washington": "America/New_York",
    "Zurich": "Europe/Zurich",
}
_BY_LOWER = {city.lower(): city for city in ZONES}
_KNOWN = re.compile(rf"\b({'|'.join(map(re.escape, ZONES))})\b", re.IGNORECASE)
_CAPITALISED = r"[^\W\d_a-z][\w'’-]*"
_UNKNOWN = re.compile(rf"\b(?:in|for|at) ({_CAPITALISED}(?: {_CAPITALISED})*)")


def cities(text: str) -> list[str]:
    """The known cities in `text`, each once, otherwise capitalised words after "in"."""
    known = [_BY_LOWER[match[1].lower()] for match in _KNOWN.finditer(text)]
    return list(dict.fromkeys(known or _unknown(text)))


def _unknown(text: str) -> Iterator[str]:
    for match in _UNKNOWN.finditer(text):
        yield match[1]
