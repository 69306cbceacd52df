"""Changes of presets that must pass an evaluation: they become drafts."""

from __future__ import annotations

from conversations.models.preset import Preset
from conversations.models.staff.evaluation import (
    SHOWN,
    NotPublishable,
    PresetDraft,
    check_publishable,
)
from conversations.models.staff.preset_content import FIELDS, Content
from project.config_file.findings import Findings

NOTE = "Configuration file"


def hold_back(path: str, preset: Preset, before: Content, findings: Findings) -> None:
    """Where the change from `before` must pass an evaluation that it has not passed,
    take it back and store it as the preset's draft, as the admin does.

    What people see of a preset, and who may use it, no evaluation tries: it stays.
    """
    row = Preset.objects.get(pk=preset.pk)
    wanted = row.content()
    changed = [
        name
        for name in FIELDS
        if name not in SHOWN and before.get(name) != wanted.get(name)
    ]
    if not changed:
        return
    row.set_content({**wanted, **{name: before.get(name) for name in changed}})
    try:
        check_publishable(row, wanted)
    except NotPublishable as exc:
        lines = tuple(f"{path}.{name}:" for name in changed)
        findings.changes[:] = [c for c in findings.changes if not c.startswith(lines)]
        _store_draft(path, row, wanted, str(exc), findings)
    else:
        row.set_content(wanted)


def _store_draft(
    path: str, row: Preset, wanted: Content, why: str, findings: Findings
) -> None:
    draft = PresetDraft.objects.filter(preset=row).first()
    if draft is not None and draft.content == wanted:
        findings.notes.append(f"{path}: still held back as a draft. {why}")
    elif draft is not None and draft.note != NOTE:
        findings.notes.append(
            f"{path}: not changed. {why} It has another draft; publish or discard that"
            " first."
        )
    else:
        PresetDraft.objects.update_or_create(
            preset=row, defaults={"content": wanted, "note": NOTE, "made_by": None}
        )
        findings.changes.append(f"{path}: saved as a draft")
        findings.notes.append(f"{path}: held back as a draft. {why}")
