"""The sentences by which this server describes a failed connection to staff.

They may be shown where a host's or token issuer's message, which can quote a
conversation, may not. A row of a call has either of them in the same column, so
`describe_connection_problem` compares that text with the sentences.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from string import Formatter
from typing import NamedTuple

from django.utils.translation import gettext


def gettext_noop(text: str) -> str:
    """Mark a text for the catalogue. Django's function of this name reads the settings,
    which a program may configure after it imports this module."""
    return text


MAX_SENTENCE = 300  # characters, more than the longest has

NO_PROXY = gettext_noop("The proxy cannot be reached.")
PROXY_REFUSES = gettext_noop("The proxy answers with HTTP {status}.")
NOT_REACHED = gettext_noop("The provider cannot be reached. ({error})")
CUT_OFF = gettext_noop("The stream was cut off. ({error})")
NOT_CONNECTED = gettext_noop("No connection within {seconds:g} s.")
STALLED = gettext_noop("The connection stalled: {error}.")
LEFT = gettext_noop("The connection was closed after {seconds:g} s of work.")
NO_ANSWER = gettext_noop("No answer within {seconds:g} s.")
SILENT = gettext_noop("Silent for {seconds:g} s.")
NOT_FINISHED = gettext_noop("Not finished within {seconds:g} s.")


class TlsSentences(NamedTuple):
    """About a TLS connection to one peer."""

    certificates: Mapping[int, str]
    other_certificate: str
    no_tls: str
    handshake_failed: str

    @property
    def all(self) -> tuple[str, ...]:
        certificates = dict.fromkeys(self.certificates.values())
        return (*certificates, *self[1:])


SERVER_TLS = TlsSentences(
    certificates={  # by OpenSSL's numbers (X509_V_ERR_…)
        9: gettext_noop(
            "No secure connection: the server's certificate is not valid yet."
        ),
        10: gettext_noop("No secure connection: the server's certificate has expired."),
        **dict.fromkeys(
            (2, 18, 19, 20, 21),
            gettext_noop(
                "No secure connection: the server's certificate is signed by an"
                " authority that is unknown here; enter its CA certificate if it is"
                " your own."
            ),
        ),
        **dict.fromkeys(
            (62, 64),
            gettext_noop(
                "No secure connection: the server's certificate is for another host"
                " name."
            ),
        ),
    },
    other_certificate=gettext_noop(
        "No secure connection: the server's certificate is invalid."
    ),
    no_tls=gettext_noop(
        "No secure connection: the server does not speak TLS here, or no version that"
        " is accepted."
    ),
    handshake_failed=gettext_noop(
        "No secure connection: the TLS handshake with the server failed."
    ),
)
PROXY_TLS = TlsSentences(
    certificates={  # by OpenSSL's numbers (X509_V_ERR_…)
        9: gettext_noop(
            "No secure connection: the proxy's certificate is not valid yet."
        ),
        10: gettext_noop("No secure connection: the proxy's certificate has expired."),
        **dict.fromkeys(
            (2, 18, 19, 20, 21),
            gettext_noop(
                "No secure connection: the proxy's certificate is signed by an"
                " authority that is unknown here; enter its CA certificate if it is"
                " your own."
            ),
        ),
        **dict.fromkeys(
            (62, 64),
            gettext_noop(
                "No secure connection: the proxy's certificate is for another host"
                " name."
            ),
        ),
    },
    other_certificate=gettext_noop(
        "No secure connection: the proxy's certificate is invalid."
    ),
    no_tls=gettext_noop(
        "No secure connection: the proxy does not speak TLS here, or no version that"
        " is accepted."
    ),
    handshake_failed=gettext_noop(
        "No secure connection: the TLS handshake with the proxy failed."
    ),
)

#: What stands in the sentences: nothing that a host can choose freely.
_VALUES = {
    "status": r"\d{3}",
    "seconds": r"\d[\d.e+-]{0,15}",
    # The name of an exception of Python, httpx or aiohttp.
    "error": r"(?:[A-Z][A-Za-z]{0,50})?(?:Error|Timeout|Exception|Closed)",
}


def describe_connection_problem(detail: str) -> str:
    """`detail` in the active language if this server worded it, about a connection
    that failed; else ""."""
    for sentence, pattern in _PATTERNS:
        if found := pattern.fullmatch(detail):
            return _fill_in(gettext(sentence), found.groupdict()) or detail
    return ""


def _fill_in(sentence: str, values: Mapping[str, str]) -> str:
    """ "" if the sentence, a translation, has a place that there is no value for."""
    pieces = [
        (text, name) for text, name, _spec, _conversion in _FORMAT.parse(sentence)
    ]
    if any(name is not None and name not in values for _text, name in pieces):
        return ""
    return "".join(text + (values[name] if name else "") for text, name in pieces)


def _pattern_of(sentence: str) -> str:
    return "".join(
        re.escape(text) + (f"(?P<{name}>{_VALUES[name]})" if name else "")
        for text, name, _spec, _conversion in _FORMAT.parse(sentence)
    )


_FORMAT = Formatter()
_SENTENCES = (
    *(NO_PROXY, PROXY_REFUSES, NOT_REACHED, CUT_OFF, NOT_CONNECTED, STALLED),
    *(LEFT, NO_ANSWER, SILENT, NOT_FINISHED, *SERVER_TLS.all, *PROXY_TLS.all),
)
_PATTERNS = [(each, re.compile(_pattern_of(each))) for each in _SENTENCES]
