"""The form field for files of a message."""

from __future__ import annotations

from typing import Any

from django import forms

from conversations.turns.attachments import (
    UploadRefused,
    ValidatedFile,
    validate_files,
)


class FilesInput(forms.ClearableFileInput):
    allow_multiple_selected = True

    def value_from_datadict(self, data: Any, files: Any, name: str) -> Any:
        return files.getlist(name) if files else []


class FilesField(forms.FileField):
    """Any number of files, validated. `owner_id` must be set before it is cleaned."""

    widget = FilesInput
    owner_id: Any = None

    def clean(self, data: Any, initial: Any = None) -> list[ValidatedFile]:
        try:
            return validate_files(self.owner_id, data)
        except UploadRefused as exc:
            raise forms.ValidationError(str(exc), code=exc.code) from exc
