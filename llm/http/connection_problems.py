"""The sentences by which this server describes a failed connection to staff.

They may be shown where a host's or token issuer's message, which can quote a
conversation, may not. A row of a call has either of them in the same column, so
`describe_connection_problem` compares that text with the sentences.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from string import Formatter

MAX_SENTENCE = 300  # characters, more than the longest has

NO_PROXY = "The proxy cannot be reached."
PROXY_REFUSES = "The proxy answers with HTTP {status}."
NOT_REACHED = "The provider cannot be reached. ({error})"
CUT_OFF = "The stream was cut off. ({error})"
NOT_CONNECTED = "No connection within {seconds:g} s."
STALLED = "The connection stalled: {error}."
NO_ANSWER = "No answer within {seconds:g} s."
SILENT = "Silent for {seconds:g} s."
NOT_FINISHED = "Not finished within {seconds:g} s."
BAD_CERTIFICATE = "No secure connection: the {peer}'s certificate {problem}."
NO_TLS = (
    "No secure connection: the {peer} does not speak TLS here, or no version that is"
    " accepted."
)
HANDSHAKE_FAILED = "No secure connection: the TLS handshake with the {peer} failed."

#: By OpenSSL's numbers (X509_V_ERR_…).
CERTIFICATE_PROBLEMS: Mapping[int, str] = {
    9: "is not valid yet",
    10: "has expired",
    **dict.fromkeys(
        (2, 18, 19, 20, 21),
        "is signed by an authority that is unknown here; enter its CA certificate if"
        " it is your own",
    ),
    **dict.fromkeys((62, 64), "is for another host name"),
}
UNKNOWN_CERTIFICATE_PROBLEM = "is invalid"

#: What stands in the sentences: nothing that a host can choose freely.
_VALUES = {
    "status": r"\d{3}",
    "seconds": r"\d[\d.e+-]{0,15}",
    # The name of an exception of Python, httpx or aiohttp.
    "error": r"(?:[A-Z][A-Za-z]{0,50})?(?:Error|Timeout|Exception|Closed)",
    "peer": "server|proxy",
    "problem": "|".join(
        map(re.escape, {*CERTIFICATE_PROBLEMS.values(), UNKNOWN_CERTIFICATE_PROBLEM})
    ),
}


def describe_connection_problem(detail: str) -> str:
    """`detail` if this server worded it, about a connection that failed; else ""."""
    return detail if _SENTENCE.fullmatch(detail) else ""


def _pattern_of(sentence: str) -> str:
    return "".join(
        re.escape(text) + (f"(?:{_VALUES[name]})" if name else "")
        for text, name, _spec, _conversion in Formatter().parse(sentence)
    )


_SENTENCES = (
    *(NO_PROXY, PROXY_REFUSES, NOT_REACHED, CUT_OFF, NOT_CONNECTED, STALLED),
    *(NO_ANSWER, SILENT, NOT_FINISHED, BAD_CERTIFICATE, NO_TLS, HANDSHAKE_FAILED),
)
_SENTENCE = re.compile("|".join(map(_pattern_of, _SENTENCES)))
