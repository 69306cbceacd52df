"""Imports of sample files, and archives of them."""

from __future__ import annotations

import io
import zipfile
from datetime import timedelta
from pathlib import Path
from typing import Any

from django.core.files.base import ContentFile
from django.utils import timezone

from conversations.models import ConversationImport
from conversations.transfer.imports import accept, run_import

SAMPLES = Path(__file__).parent / "samples"


def imported(owner: Any, data: bytes | str, name: str = "export.json") -> Any:
    content = data.encode() if isinstance(data, str) else data
    row = accept(owner, ContentFile(content, name=name))
    assert run_import(row.pk)
    row.refresh_from_db()
    return row


def sample(name: str) -> bytes:
    return (SAMPLES / f"{name}.json").read_bytes()


def zipped(**files: bytes) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name.replace("__", "/") + ".json", data)
    return stream.getvalue()


def age(row: Any) -> None:
    """As if it had made no progress for long."""
    long_ago = timezone.now() - timedelta(minutes=5)
    ConversationImport.objects.filter(pk=row.pk).update(seen_at=long_ago)
