"""Errors of providers in words for staff, who can mend them.

The default texts of `llm.errors` are for people in the chat and refer them to the
staff.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from html import unescape
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from llm.db.encrypted_field import scrub
from llm.error_texts.staff_instructions import instruct
from llm.errors import CutOff, LLMError
from llm.http.address_problems import NO_URL, PRIVATE_NETWORK, REDIRECT, WEB_PAGE
from llm.http.connection_problems import describe_connection_problem
from llm.models.api_key import MAX_REASON

MAX_HOST_MESSAGE = 300  # characters
MAX_READ = 10_000  # characters of a host's message
_MARKUP = re.compile(r"<(script|style)\b.*?</\1>|<[^>]*>", re.DOTALL | re.IGNORECASE)

_BY_CODE: Mapping[str, Any] = {
    "E_LLM_BAD_REQUEST": gettext_lazy("The provider refused the request."),
    "E_LLM_INVALID_KEY": gettext_lazy("The provider refused the key."),
    "E_LLM_CONTEXT_TOO_LARGE": gettext_lazy("The prompt is too long for the model."),
    "E_MODEL_NOT_AVAILABLE": gettext_lazy(
        "The provider has no such model, or not for this key."
    ),
    "E_LLM_CONTENT_POLICY": gettext_lazy(
        "The provider's content policy does not allow the request."
    ),
    "E_LLM_QUOTA": gettext_lazy("The account at the provider has no credit left."),
    "E_LLM_RATE_LIMIT": gettext_lazy("The provider's rate limit is reached."),
    "E_LLM_PROVIDER_DOWN": gettext_lazy("The provider is down or overloaded."),
    "E_LLM_TIMEOUT": gettext_lazy("The provider did not answer in time."),
    "E_NO_FREE_CONNECTION": gettext_lazy(
        "All connections of this server to providers were in use."
    ),
    "E_LLM_BAD_RESPONSE": gettext_lazy(
        "The answer is not one of this API. Is the base URL right?"
    ),
}
#: In place of a sentence that refers people to the staff.
_BY_SENTENCE: Mapping[str, Any] = {
    PRIVATE_NETWORK: gettext_lazy(
        "The base URL leads to a private network: tick “Allow private network”, or"
        " correct it."
    ),
    WEB_PAGE: gettext_lazy(
        "A web page came instead of an API's answer: correct the base URL, which often"
        " ends in /v1."
    ),
    REDIRECT: gettext_lazy(
        "The host redirects to another address: correct the base URL."
    ),
    NO_URL: gettext_lazy("The base URL is not a valid address."),
}


def describe_code(code: str) -> str:
    """The words for a code of Parley; any other code itself."""
    return str(_BY_CODE.get(code, code))


def describe_reason(stored: str) -> str:
    """A reason that is stored with a key, as "<code>: <text for people>"."""
    code, colon, text = stored.partition(": ")
    is_cut = len(stored) >= MAX_REASON
    return _known_words(code, text) or f"{code}{colon}{instruct(text, is_cut=is_cut)}"


def describe_error(error: LLMError) -> str:
    """In this server's words, without status and message of the host."""
    if problem := describe_connection_problem(error.detail):
        return problem
    if isinstance(error, CutOff):
        return _("The provider's answer ended too early.")
    text = str(error)
    return _known_words(error.code, text) or instruct(text)


def describe_error_and_status(error: LLMError) -> str:
    return add_status(describe_error(error), error.upstream_status)


def describe_failure(error: LLMError) -> str:
    """With status and message of the host: only for requests that quote no
    conversation."""
    return add_host_message(describe_error_and_status(error), error)


def add_status(words: str, status: int | None) -> str:
    """`words` and the HTTP status of an error, if it is one."""
    if not status or status < 400:
        return words
    values = {"words": words, "status": status}
    return _("%(words)s (HTTP %(status)s)") % values


def add_host_message(words: str, error: LLMError, secrets: Collection[str] = ()) -> str:
    """`words` and the host's own, if it sent any, without `secrets`."""
    if describe_connection_problem(error.detail):
        return words  # this server worded it
    if not (message := _host_message(scrub(error.detail, secrets))):
        return words
    values = {"words": words, "message": message}
    return _("%(words)s The provider's message: %(message)s") % values


def _known_words(code: str, text: str) -> str:
    """Parley's words if the error's code or sentence describes it fully; else ""."""
    if text in _BY_SENTENCE:
        return str(_BY_SENTENCE[text])
    is_known = code in _BY_CODE and text in _default_texts()
    return describe_code(code) if is_known else ""


def _host_message(detail: str) -> str:
    """Its beginning; of a page of HTML only the words."""
    text = detail[:MAX_READ]
    if text.lstrip()[:1] == "<":
        text = unescape(_MARKUP.sub(" ", text))
    words = scrub(" ".join(text.split()))
    cut = words[:MAX_HOST_MESSAGE]
    return f"{cut}…" if len(words) > len(cut) else cut


@cache
def _default_texts() -> frozenset[str]:
    """Those of errors about which no more is known than their class."""
    return frozenset(str(each()) for each in _tree_of(LLMError))


def _tree_of(base: type[LLMError]) -> Iterator[type[LLMError]]:
    if base.__module__ == LLMError.__module__:
        yield base
        for each in base.__subclasses__():
            yield from _tree_of(each)
