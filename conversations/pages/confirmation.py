"""The page that asks before one thing is deleted for good, also without scripts."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render


def ask_before_deleting(
    request: HttpRequest, question: str, what: str, back: str
) -> HttpResponse:
    """The page posts to its own address; `back` is where *Cancel* leads."""
    context = {"question": question, "what": what, "back": back}
    return render(request, "conversations/delete_one.html", context)
