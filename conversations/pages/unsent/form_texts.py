"""What a person wrote in a form that the server did not accept.

Only forms of the table below: none of them has a password or a key.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from django.conf import settings
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

#: Patterns of the fields in which people write, by the URL name of the form.
_TEXT_FIELDS = {
    "chat": ("text", "instructions"),
    # Buttons beside the message box send what is in it, too.
    **dict.fromkeys(("conversation", "refresh", "stop", "retry"), ("text",)),
    **dict.fromkeys(("continue", "choose-tools", "cancel-call"), ("text",)),
    "show-branch": ("text",),
    "edit-message": ("text",),
    "change-queued": ("text",),
    "change-item": ("summary",),
    "change-memory": ("text",),
    "rate": ("comment",),
    "rename": ("title",),
    "organise": ("labels",),
    "chat-options": ("instructions",),
    "library": ("tag",),
    "folders": ("name", "instructions"),
    "folder": ("name", "instructions"),
    "prompts": ("name", "title", "text"),
    "prompt": ("name", "title", "text"),
    "use-prompt": ("*",),
    "question": ("note", "arguments", "content-*"),
    "settings": (),
    "settings-personal": ("custom_instructions",),
    "settings-shortcuts": (),
}
#: Forms whose choices are worth sending again without any text.
_CHOICES = {"settings", "settings-personal", "settings-shortcuts"}
#: Forms that are not sent again from another page, as it does not show the question.
_DECISIONS = {"question"}
_LABELS = {
    "text": _("Text"),
    "instructions": _("Instructions"),
    "custom_instructions": _("Instructions"),
    "summary": _("Summary of the earlier messages"),
    "comment": _("Your comment"),
    "title": _("Title"),
    "name": _("Name"),
    "labels": _("Tags"),
    "tag": _("Tag"),
    "note": _("Note"),
    "arguments": _("Arguments as JSON"),
}
_TOKEN = "csrfmiddlewaretoken"
#: Characters that a page shows in addition to one message of the maximum length.
_SPARE = 100_000
_MOST_ROWS = 12


@dataclass(frozen=True, slots=True)
class WrittenText:
    name: str
    text: str

    @property
    def label(self) -> Any:
        return _LABELS.get(self.name) or _("What you wrote")

    @property
    def rows(self) -> int:
        return min(_MOST_ROWS, self.text.count("\n") + len(self.text) // 80 + 1)


@dataclass(frozen=True, slots=True)
class RefusedForm:
    """A form's fields: texts are shown, the rest goes with them if it is sent again."""

    texts: list[WrittenText]
    rest: list[tuple[str, str]]
    file_names: list[str]  # of files, which only the person can choose again
    is_cut: bool  # the texts are longer than a page shows
    may_be_sent: bool


def read_form(request: HttpRequest) -> RefusedForm | None:
    """What the form of this request has; None if it is another form, or is empty."""
    match = request.resolver_match
    name = match.url_name if match and not match.namespaces else None
    if request.method != "POST" or name not in _TEXT_FIELDS:
        return None
    texts, rest = _split(request, _TEXT_FIELDS[name])
    files = [file for _name, some in request.FILES.lists() for file in some]
    file_names = [file.name or "" for file in files]
    if not (texts or file_names or name in _CHOICES):
        return None
    is_cut = _size(texts) + _size(rest) > _longest()
    return RefusedForm(
        texts=_cut(texts) if is_cut else texts,
        rest=[(field.name, field.text) for field in rest],
        file_names=file_names,
        is_cut=is_cut,
        may_be_sent=not is_cut and name not in _DECISIONS,
    )


def _split(
    request: HttpRequest, patterns: tuple[str, ...]
) -> tuple[list[WrittenText], list[WrittenText]]:
    """The fields that match a pattern and are not blank, and the others."""
    texts: list[WrittenText] = []
    rest: list[WrittenText] = []
    for name, values in request.POST.lists():
        is_text = any(fnmatchcase(name, pattern) for pattern in patterns)
        for value in values if name != _TOKEN else ():
            shown = is_text and value.strip()
            (texts if shown else rest).append(WrittenText(name, value))
    return texts, rest


def _longest() -> int:
    return settings.MAX_INPUT_SIZE + _SPARE


def _size(fields: list[WrittenText]) -> int:
    return sum(len(field.name) + len(field.text) for field in fields)


def _cut(texts: list[WrittenText]) -> list[WrittenText]:
    room = _longest()
    cut = []
    for field in texts:
        cut.append(WrittenText(field.name, field.text[:room]))
        room -= len(cut[-1].text)
        if room <= 0:
            break
    return cut
