"""Errors of deliveries in the reader's language; they are stored in English."""

from __future__ import annotations

from django.utils.translation import gettext_noop

from llm.error_texts.english_texts import EnglishTexts

ANSWERED = gettext_noop("The receiver answered %(status)s.")
REDIRECTS = gettext_noop(
    "The receiver redirects (%(status)s); enter its final address."
)
UNREADABLE_SECRET = gettext_noop("Its secret cannot be decrypted; make a new one.")
FAULT = gettext_noop("Internal error; the log has the details.")
MAIL_REFUSED = gettext_noop("The mail server refused it (%(error)s).")
UNWANTED = gettext_noop("The receiver wants no more events (410 Gone).")
TOO_LATE = gettext_noop("It was not sent within three days.")
FOR_NOBODY = gettext_noop("The last user or group that it was for was deleted.")
_ERRORS = EnglishTexts(
    (
        *(ANSWERED, REDIRECTS, UNREADABLE_SECRET, FAULT, MAIL_REFUSED, UNWANTED),
        *(FOR_NOBODY, TOO_LATE),
    )
)


def translate_delivery_error(stored: str) -> str:
    """As it is stored if the network worded it."""
    return _ERRORS.translate(stored) or stored
