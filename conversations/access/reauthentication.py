"""Dangerous acts need a person who proved lately who it is.

Pages raise `ReauthenticationRequired`: the middleware of django-allauth asks for the
password or a second factor, and then repeats the request. REST answers with an error.
Access tokens are not asked: they have no session, and scopes of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from allauth.core.exceptions import ReauthenticationRequired
from django.http import HttpRequest, HttpResponseBase

from conversations.access.errors import ProofMissing
from conversations.access.required_steps import owes_own_factor
from conversations.access.session_marks import is_proven_lately

View = Callable[..., HttpResponseBase]


def is_proven(request: Any) -> bool:
    """Whether the person proved it lately, by the account's second factor if it has
    one: the factor may have been added elsewhere since the session began."""
    return is_proven_lately(request.session) and not owes_own_factor(request)


def requires_proof(*methods: str) -> Callable[[View], View]:
    """A decorator for pages; only requests with these methods need a proof."""

    def decorate(view: View) -> View:
        @wraps(view)
        def respond(
            request: HttpRequest, *args: Any, **kwargs: Any
        ) -> HttpResponseBase:
            if request.method in methods and not is_proven(request):
                raise ReauthenticationRequired
            return view(request, *args, **kwargs)

        return respond

    return decorate


def check_proof(request: Any) -> None:
    """For REST, of a browser's session. Raises ProofMissing."""
    if not is_proven(request):
        raise ProofMissing
