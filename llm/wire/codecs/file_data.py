"""Files in a request: their media type and content, however a client writes them.

In: `file_data` of a part, a data URL or mere base64, and the file's name. The name's
suffix decides where the client declares no type or `application/octet-stream`, which
browsers declare for source code.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote_to_bytes

from llm.wire.text.encoding import decode_text

PDF = "application/pdf"
_OPEN_XML = "application/vnd.openxmlformats-officedocument."
_OFFICE = {
    "docx": f"{_OPEN_XML}wordprocessingml.document",
    "pptx": f"{_OPEN_XML}presentationml.presentation",
    "xlsx": f"{_OPEN_XML}spreadsheetml.sheet",
    "docm": "application/vnd.ms-word.document.macroenabled.12",
    "pptm": "application/vnd.ms-powerpoint.presentation.macroenabled.12",
    "xlsm": "application/vnd.ms-excel.sheet.macroenabled.12",
}
_OFFICE_TYPES = frozenset(_OFFICE.values())
_HEAD = 500  # characters of a data URL before its content
_UNKNOWN = ("", "application/octet-stream")
_TEXT = re.compile(r"text/|application/(json|xml|yaml|toml|x-|javascript)")
_SUFFIXES = {
    "aac": "audio/aac",
    "csv": "text/csv",
    "flac": "audio/flac",
    "gif": "image/gif",
    "heic": "image/heic",
    "heif": "image/heif",
    "htm": "text/html",
    "html": "text/html",
    "jpeg": "image/jpeg",
    "jpg": "image/jpeg",
    "md": "text/markdown",
    "mov": "video/mov",
    "mp3": "audio/mp3",
    "mp4": "video/mp4",
    "ogg": "audio/ogg",
    "pdf": PDF,
    "png": "image/png",
    "wav": "audio/wav",
    "webm": "video/webm",
    "webp": "image/webp",
    **_OFFICE,
} | dict.fromkeys(
    (
        *("bat", "c", "cfg", "conf", "cpp", "cs", "css", "go", "h", "hpp", "ini"),
        *("java", "js", "json", "jsonl", "jsx", "kt", "log", "lua", "php", "pl", "py"),
        *("r", "rb", "rs", "rst", "sh", "sql", "srt", "swift", "tex", "toml", "ts"),
        *("tsv", "tsx", "txt", "vtt", "xml", "yaml", "yml"),
    ),
    "text/plain",
)


@dataclass(frozen=True, slots=True)
class FileData:
    media_type: str
    encoded: str  # base64, without line breaks
    charset: str = ""

    @property
    def is_text(self) -> bool:
        return _TEXT.match(self.media_type) is not None

    def content(self) -> bytes | None:
        """None if it is not base64, which may have blanks."""
        try:
            return base64.b64decode(self.encoded.replace(" ", ""), validate=True)
        except (binascii.Error, ValueError):
            return None

    def text(self) -> str | None:
        """The content as text; None if it is none."""
        data = self.content()
        return None if data is None else decode_text(data, self.charset)


def is_data_url(address: str) -> bool:
    return address[:5].lower() == "data:"


def without_breaks(text: str) -> str:
    """Base64 or a data URL without line breaks, which encoders of mails put into it and
    many hosts refuse. It may be large, so no list of its lines is made."""
    for each in "\t\n\r":
        text = text.replace(each, "")
    return text


def plain_audio(audio: Any) -> Any:
    """Recorded sound with bare base64: hosts refuse a data URL and line breaks."""
    data = audio.get("data") if isinstance(audio, Mapping) else audio
    if not isinstance(data, str):
        return audio
    if is_data_url(data):
        data = data.partition(",")[2]
    data = without_breaks(data)
    return {**audio, "data": data} if isinstance(audio, Mapping) else data


def read_file(data: str, name: str = "") -> FileData:
    """The file in `data`, which is a data URL or base64, with or without line
    breaks."""
    if not is_data_url(data):
        return FileData(media_type_of(name, PDF), without_breaks(data))
    head, _, content = data[5:].partition(",")
    kind, *parameters = (part.strip() for part in head.split(";"))
    if not any(part.lower() == "base64" for part in parameters):
        content = base64.b64encode(unquote_to_bytes(content)).decode()
    if (kind := kind.lower()) in _UNKNOWN:
        kind = media_type_of(name, kind or "text/plain")
    named = (part.partition("=") for part in parameters)
    charset = next((v.strip('"') for n, _, v in named if n.lower() == "charset"), "")
    return FileData(kind, without_breaks(content), charset)


def media_type_of(name: str, usual: str) -> str:
    """The type that a name's suffix stands for; `usual` if it has none that is
    known."""
    _, dot, suffix = name.rpartition(".")
    return _SUFFIXES.get(suffix.lower(), usual) if dot else usual


def names_video(part: Mapping[str, Any]) -> bool:
    """Whether the name of a file says that it is a video."""
    name = part.get("filename") or ""
    return isinstance(name, str) and media_type_of(name, "").startswith("video/")


def holds_office_file(part: Mapping[str, Any]) -> bool:
    """Whether the data of a part are a Word, Excel or PowerPoint file, by its declared
    type or its name."""
    data, name = part.get("file_data"), part.get("filename") or ""
    if not isinstance(data, str) or not data or not isinstance(name, str):
        return False
    head = data[:_HEAD].partition(",")[0] if is_data_url(data) else ""
    kind = head[5:].partition(";")[0].strip().lower()
    kind = media_type_of(name, "") if kind in _UNKNOWN else kind
    return kind in _OFFICE_TYPES
