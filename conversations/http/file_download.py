"""Response with the content of an uploaded file."""

from __future__ import annotations

from django.http import Http404, HttpResponse
from django.utils.http import content_disposition_header

from conversations.models import Attachment, FolderFile
from conversations.turns.file_contents import read_content
from conversations.turns.file_kinds import IMAGES, TEXT

#: Browsers must not run scripts in uploaded files.
_CONTENT_SECURITY_POLICY = "default-src 'none'; sandbox"


def download(row: Attachment, cache_control: str) -> HttpResponse:
    """Pictures are sent for display, everything else as a download."""
    return _respond(row, _read(row), cache_control)


def download_folder_file(row: FolderFile, cache_control: str) -> HttpResponse:
    """As `download`."""
    data = row.text.encode() if row.content_type == TEXT else _read(row)
    return _respond(row, data, cache_control)


def _read(row: Attachment | FolderFile) -> bytes:
    if (content := read_content(row)) is None:
        raise Http404  # the file itself was deleted
    return content.data


def _respond(
    row: Attachment | FolderFile, data: bytes, cache_control: str
) -> HttpResponse:
    shows = content_disposition_header(row.content_type not in IMAGES, row.name)
    headers = {
        "Content-Disposition": str(shows),
        "Content-Security-Policy": _CONTENT_SECURITY_POLICY,
        "X-Content-Type-Options": "nosniff",
        "Cache-Control": cache_control,
    }
    return HttpResponse(data, content_type=row.content_type, headers=headers)
