"""Word, Excel and PowerPoint files, of which the text is stored instead.

Every model reads text, and the page shows what the model reads.
"""

from __future__ import annotations

from django.conf import settings
from django.core.files.base import ContentFile, File
from django.utils.translation import gettext as _

from conversations.turns.upload_refused import UploadRefused, unsupported
from llm.office.package import Reason, Unreadable
from llm.office.text import extract_text


def text_of_office_file(name: str, data: bytes) -> File[bytes]:
    """A file with the text, `report.docx.txt` for `report.docx`. A text over the limit
    of text files is cut, and says so. Raises UploadRefused."""
    try:
        text = extract_text(data, settings.MAX_INPUT_SIZE)
    except Unreadable as exc:
        raise _refusal(name, exc.reason) from exc
    return ContentFile(text.encode(errors="replace"), f"{name}.txt")


def _refusal(name: str, reason: Reason) -> UploadRefused:
    if reason == "unknown":
        return unsupported(name)
    if reason == "too_large":
        words = _("“%(name)s” is too large when it is unpacked. Send a part of it.")
        return UploadRefused(words % {"name": name}, "file_too_large", 413)
    words = {
        "damaged": _(
            "“%(name)s” is damaged, or not a file that Word, Excel or PowerPoint can"
            " open. Save it again and send that file."
        ),
        "empty": _("“%(name)s” contains no text. Send it as PDF or as pictures."),
        "protected": _(
            "“%(name)s” has a password or an old format. Save it without a password as"
            " .docx, .xlsx or .pptx."
        ),
    }[reason]
    return UploadRefused(words % {"name": name}, "unsupported_file", 415)
