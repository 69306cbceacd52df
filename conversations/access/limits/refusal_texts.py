"""Texts of refusals for a limit of use, and their translation from stored English."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from functools import cache

from django.template.defaultfilters import filesizeformat
from django.utils import translation
from django.utils.formats import date_format, number_format
from django.utils.translation import gettext, gettext_noop, ngettext

from conversations.models.access_token import NANOS_PER_DOLLAR
from conversations.models.limits.usage_limit import LimitPeriod

ENDS = {  # by the limit's kind
    "user": gettext_noop("Your limit, %(amount)s %(period)s, is reached."),
    "group": gettext_noop("Your group's limit, %(amount)s %(period)s, is reached."),
    "token": gettext_noop(
        "This access token's limit, %(amount)s %(period)s, is reached."
    ),
}
SHORTAGES = {
    "user": gettext_noop(
        "Your limit, %(amount)s %(period)s, has %(left)s left; this may need"
        " %(needed)s."
    ),
    "group": gettext_noop(
        "Your group's limit, %(amount)s %(period)s, has %(left)s left; this may"
        " need %(needed)s."
    ),
    "token": gettext_noop(
        "This access token's limit, %(amount)s %(period)s, has %(left)s left;"
        " this may need %(needed)s."
    ),
}
ADVICE = {  # by the measure
    "cost": gettext_noop("A cheaper model or a shorter chat may fit."),
    "tokens": gettext_noop("A shorter message or a new chat may fit."),
}
OTHER_ADVICE = gettext_noop("A shorter message may fit.")
NEW_PERIOD = gettext_noop("A new period begins on %(when)s.")
ASK = gettext_noop("Ask your administrators if you need more.")

_SENTENCES = (
    *(*ENDS.values(), *SHORTAGES.values(), *ADVICE.values()),
    *(OTHER_ADVICE, NEW_PERIOD, ASK),
)
_PLACE = re.compile(r"%\((\w+)\)s")
_MONEY = r"\$\d+(?:\.\d+)?"
_COUNTED = re.compile(r"\d[\d,]* (?:message|token)s?")
_SIZE = re.compile(r"\d[\d,]*(?:\.\d+)?\s(?:bytes?|KB|MB|GB|TB|PB)")
_MEASURES = {"message": "requests", "token": "tokens"}
_UNITS = ("byte", "KB", "MB", "GB", "TB", "PB")
_TIME = re.compile(
    r"(\S+) (\d+), (\d+), (?:midnight|noon|(\d+)(?::(\d+))? ([ap])\.m\.)"
)


def describe_amount(measure: str, amount: int) -> str:
    """For people: "10 messages", "$0.25"."""
    number = number_format(amount, use_l10n=True, force_grouping=True)
    match measure:
        case "cost":
            dollars = Decimal(amount) / NANOS_PER_DOLLAR
            return f"${dollars.normalize():f}" if amount else "$0"
        case "requests":
            return ngettext("%s message", "%s messages", amount) % number
        case "tokens":
            return ngettext("%s token", "%s tokens", amount) % number
    return filesizeformat(amount)


def translate_refusal(message: str) -> str | None:
    """An English refusal in the active language; None for any other message."""
    sentences = []
    while message:
        found = _match(message)
        if found is None:
            return None
        text, match = found
        places = match.groupdict().items()
        try:
            values = {name: _READERS[name](value) for name, value in places}
        except ValueError:  # November 31, say: no refusal has it
            return None
        sentences.append(gettext(text) % values)
        message = message[match.end() :]
    return " ".join(sentences) or None


def _match(message: str) -> tuple[str, re.Match[str]] | None:
    for text, pattern in _patterns():
        if match := pattern.match(message):
            return text, match
    return None


@cache
def _patterns() -> list[tuple[str, re.Pattern[str]]]:
    """Each sentence with a pattern of it, up to the next sentence or the end."""
    return [(text, _pattern_of(text)) for text in _SENTENCES]


def _pattern_of(text: str) -> re.Pattern[str]:
    pieces = _PLACE.split(text)  # texts and names in turn
    body = "".join(
        f"(?P<{piece}>{_form_of(piece)})" if number % 2 else re.escape(piece)
        for number, piece in enumerate(pieces)
    )
    return re.compile(rf"{body}(?: |\Z)")


def _form_of(place: str) -> str:
    match place:
        case "period":
            periods = map(re.escape, _english_periods().values())
            return rf"(?:{'|'.join(periods)})(?: \(.+?\))?"
        case "when":
            return r"\S+ \d+, \d+, .+?"
    return rf"{_MONEY}|{_COUNTED.pattern}|{_SIZE.pattern}"


def _read_amount(text: str) -> str:
    number, _, unit = text.replace("\xa0", " ").partition(" ")
    number, unit = number.replace(",", ""), unit.removesuffix("s")
    if measure := _MEASURES.get(unit):
        return describe_amount(measure, int(number))
    if unit in _UNITS:
        return filesizeformat(float(number) * 1024 ** _UNITS.index(unit))
    return text  # an amount of money is the same in all languages


def _read_period(text: str) -> str:
    """A period, perhaps with the name of the limit's model."""
    for period, english in _english_periods().items():
        if text == english or text.startswith(f"{english} ("):
            return f"{LimitPeriod(period).label}{text.removeprefix(english)}"
    return text


@cache
def _english_periods() -> dict[str, str]:
    with translation.override("en"):
        return {period.value: str(period.label) for period in LimitPeriod}


def _read_time(text: str) -> str:
    """A time in Django's English format, "Nov. 30, 2026, midnight"."""
    found = _TIME.fullmatch(text)
    if found is None or (month := _english_months().get(found[1])) is None:
        return text
    is_afternoon = found[6] == "p" or text.endswith("noon")
    hour = int(found[4] or 0) % 12 + (12 if is_afternoon else 0)
    time = datetime(int(found[3]), month, int(found[2]), hour, int(found[5] or 0))
    return date_format(time, "DATETIME_FORMAT")


@cache
def _english_months() -> dict[str, int]:
    with translation.override("en"):
        firsts = [date(2000, number, 1) for number in range(1, 13)]
        return {date_format(first, "N"): first.month for first in firsts}


_READERS: dict[str, Callable[[str], str]] = {
    "amount": _read_amount,
    "left": _read_amount,
    "needed": _read_amount,
    "period": _read_period,
    "when": _read_time,
}
