"""Watched rows: each change that Django saves becomes an event with before and after.

`QuerySet.update` and `bulk_create` send no signals: code that changes watched rows by
them calls `record_event`. In the admin the changes of a request wait for the log entry
of its form or action, so that a form with rows inside it is one event.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from django.contrib.admin.models import ADDITION, CHANGE, DELETION, LogEntry
from django.db import models, transaction
from django.db.models.signals import m2m_changed, post_delete, post_save, pre_save

from conversations.audit.act import Act, acting, current_act
from conversations.audit.chain import fingerprint
from conversations.audit.record import NewEvent, record_event, record_events

Row = Any  # of a watched model
_VERBS = {ADDITION: "add", CHANGE: "change", DELETION: "delete"}
#: Verbs of log entries whose message names the act.
_VERBS_OF_MESSAGES = {
    "Exported.": "export",
    "Revoked.": "revoke",
    "Signed out everywhere.": "sign_out",
}
#: How messages of acts begin that `record_event` records where they happen.
_RECORDED = ("Deleted.", "Revoked.", "Imported a configuration file")
_recorded_kinds: set[str] = set()  # whose every act `record_event` records
_areas: dict[str, str] = {}  # of rows that are not watched, by kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    area: str  # the first word of the action: "config.change"
    ignored: frozenset[str] = frozenset()  # columns that are state, or people's words
    #: Columns whose values are shown as fingerprints, with what reads the plain text.
    secrets: Mapping[str, Callable[[Any], str]] = field(default_factory=dict)
    #: The key of the user whom a row concerns.
    find_subject: Callable[[Row], int | None] = lambda row: None


@dataclass(slots=True)
class Change:
    verb: str
    area: str
    subject: int | None
    before: dict[str, Any] = field(default_factory=dict)
    after: dict[str, Any] = field(default_factory=dict)
    is_committed: bool = False


_watched: dict[str, Watched] = {}


def watch(model: type[models.Model], watched: Watched) -> None:
    """Record changes of this model's rows, and of its relations to many."""
    label = model._meta.label_lower
    _watched[label] = watched
    pre_save.connect(_note_before, sender=model, dispatch_uid=f"audit {label}")
    post_save.connect(_record_saved, sender=model, dispatch_uid=f"audit {label}")
    post_delete.connect(_record_deleted, sender=model, dispatch_uid=f"audit {label}")
    for relation in model._meta.local_many_to_many:
        if relation.name in watched.ignored:
            continue
        m2m_changed.connect(
            partial(_record_related, name=relation.name),
            sender=relation.remote_field.through,
            weak=False,
            dispatch_uid=f"audit {label}.{relation.name}",
        )


def name_area(area: str, kinds: Iterable[str]) -> None:
    """The first word of actions by which staff change rows that are not watched."""
    _areas.update(dict.fromkeys(kinds, area))


def leave_out(kinds: Iterable[str]) -> None:
    """Kinds of rows whose acts are recorded where they happen, not by log entries."""
    _recorded_kinds.update(kinds)


def _columns(watched: Watched, row: Row, names: Any) -> list[str]:
    return [
        column.attname
        for column in row._meta.concrete_fields
        if not column.primary_key
        and column.name not in watched.ignored
        and (names is None or column.name in names or column.attname in names)
    ]


def _read(watched: Watched, row: Row, columns: Iterable[str]) -> dict[str, Any]:
    values = {}
    for name in columns:
        value = getattr(row, name)
        if (reveal := watched.secrets.get(name)) is not None:
            plain = reveal(value) if value else ""
            value = f"fingerprint {fingerprint(plain)}" if plain else ""
        values[name] = value
    return values


def _note_before(
    *, sender: Any, instance: Row, raw: bool, update_fields: Any, **_: Any
) -> None:
    instance._audit_before = None
    if raw or instance._state.adding:
        return
    watched = _watched[sender._meta.label_lower]
    if columns := _columns(watched, instance, update_fields):
        stored = sender._base_manager.filter(pk=instance.pk).first()
        if stored is not None:
            instance._audit_before = _read(watched, stored, columns)


def _record_saved(
    *, sender: Any, instance: Row, created: bool, raw: bool, **_: Any
) -> None:
    before = instance.__dict__.pop("_audit_before", None)
    if raw or (before is None and not created):
        return
    watched = _watched[sender._meta.label_lower]
    columns = list(before) if before else _columns(watched, instance, None)
    after = _read(watched, instance, columns)
    if before is None:
        filled = {name: value for name, value in after.items() if value}
        _note(instance, Change("add", watched.area, None, {}, filled))
        return
    changed = [name for name in after if str(before[name]) != str(after[name])]
    if changed:
        old, new = ({name: each[name] for name in changed} for each in (before, after))
        _note(instance, Change("change", watched.area, None, old, new))


def _record_deleted(*, sender: Any, instance: Row, origin: Any, **_: Any) -> None:
    """Rows deleted by a cascade are covered by the event of the row that began it."""
    source = origin.model if isinstance(origin, models.QuerySet) else type(origin)
    if not issubclass(source, sender) and not issubclass(sender, source):
        return
    watched = _watched[sender._meta.label_lower]
    before = _read(watched, instance, _columns(watched, instance, None))
    filled = {name: value for name, value in before.items() if value}
    change = Change("delete", watched.area, watched.find_subject(instance), filled)
    key = (sender._meta.label_lower, str(instance.pk))
    act = current_act()
    if act.waits_for_deletions and act.waiting is not None:
        act.waiting[key] = change
    else:
        _record(key, change)


def _record_related(
    *,
    name: str,
    instance: Row,
    action: str,
    reverse: bool,
    model: type[models.Model],
    pk_set: set[Any] | None,
    **_: Any,
) -> None:
    if action not in ("post_add", "post_remove", "pre_clear"):
        return
    if reverse:
        _record_reverse(name, instance, action, model, pk_set)
        return
    if instance._meta.label_lower not in _watched:
        return
    if action == "pre_clear":
        pk_set = set(getattr(instance, name).values_list("pk", flat=True))
    if pk_set:
        names = _name_rows(model, pk_set)
        _note(instance, _relate(instance, name, names, action == "post_add"))


def _record_reverse(
    name: str,
    other: Row,
    action: str,
    model: type[models.Model],
    keys: set[Any] | None,
) -> None:
    """A change from the other side, such as of a group's users: each row's event."""
    if model._meta.label_lower not in _watched:
        return
    known = {"pk__in": keys} if action != "pre_clear" else {name: other}
    rows = list(model._base_manager.filter(**known).order_by("pk"))
    names = _name_rows(type(other), {other.pk})
    changes = [(row, _relate(row, name, names, action == "post_add")) for row in rows]
    if current_act().waiting is not None:
        for row, change in changes:
            _note(row, change)
        return
    record_events(
        _describe((model._meta.label_lower, str(row.pk)), change)
        for row, change in changes
    )


def _relate(row: Row, name: str, names: list[str], is_added: bool) -> Change:
    watched = _watched[row._meta.label_lower]
    subject = watched.find_subject(row)
    if is_added:
        return Change("change", watched.area, subject, {}, {name: {"added": names}})
    return Change("change", watched.area, subject, {name: {"removed": names}}, {})


def _name_rows(model: type[models.Model], pks: set[Any]) -> list[str]:
    """People by their keys, so that no name outlives its owner's erasure."""
    if model._meta.label_lower == "auth.user":
        return sorted(str(pk) for pk in pks)
    return sorted(str(row) for row in model._base_manager.filter(pk__in=pks))


def _note(row: Row, change: Change) -> None:
    label = row._meta.label_lower
    change.subject = _watched[label].find_subject(row)
    key = (label, str(row.pk))
    if (waiting := current_act().waiting) is None:
        _record(key, change)
        return
    earlier: Change | None = waiting.pop(key, None)
    if earlier is not None:
        # What a row was first and is last; relations add up.
        change.before = _merge(change.before, earlier.before)
        change.after = _merge(earlier.after, change.after)
        change.verb = earlier.verb
    waiting[key] = change
    change.is_committed = False
    transaction.on_commit(partial(setattr, change, "is_committed", True))


def _merge(first: dict[str, Any], last: dict[str, Any]) -> dict[str, Any]:
    return {**first, **last}


def _record(key: tuple[str, str], change: Change) -> None:
    record_events([_describe(key, change)])


def _describe(key: tuple[str, str], change: Change) -> NewEvent:
    return NewEvent(
        action=f"{change.area}.{change.verb}",
        target=key,
        subject=change.subject,
        before=change.before,
        after=change.after,
    )


# Several rows that are one act


@contextmanager
def one_event(
    action: str, *, target: Any = None, subject: Any = None
) -> Iterator[None]:
    """Within, changes of watched rows wait, and become one event at the end, which is
    not written if nothing changed."""
    act = replace(current_act(), waiting={}, waits_for_deletions=True)
    with acting(act):
        yield
        if rows := _take_rows(act, ("", "")):
            record_event(action, target=target, subject=subject, details={"rows": rows})


@contextmanager
def merged() -> Iterator[None]:
    """Within, several changes of one row are one event, which the end writes. Use it in
    the transaction of the changes."""
    if current_act().waiting is not None:
        yield
        return
    act = replace(current_act(), waiting={})
    with acting(act):
        yield
    record_events(_describe(key, each) for key, each in (act.waiting or {}).items())


def _take_rows(act: Act, but: tuple[str, str]) -> dict[str, Any]:
    waiting, act.waiting = act.waiting or {}, {}
    return {
        f"{label} {pk}": {
            "verb": each.verb,
            "before": each.before,
            "after": each.after,
        }
        for (label, pk), each in waiting.items()
        if (label, pk) != but
    }


def record_rest(act: Act) -> None:
    """Record what no log entry has taken, if it was committed."""
    waiting, act.waiting = act.waiting or {}, None
    for key, change in waiting.items():
        if change.is_committed:
            _record(key, change)


def record_log_entry(*, instance: LogEntry, created: bool, **_: Any) -> None:
    """A receiver of `post_save`: what staff did in the admin, with the changed rows."""
    if not created:
        return
    kind = (
        ".".join(instance.content_type.natural_key()) if instance.content_type else ""
    )
    watched = _watched.get(kind)
    if kind in _recorded_kinds:
        return
    if instance.action_flag == DELETION and watched:
        return  # the deletion itself is recorded
    if (act := current_act()).is_reading:
        return
    key = (kind, str(instance.object_id or instance.object_repr))
    if not kind and act.waiting and len(act.waiting) == 1:
        [key] = act.waiting  # a page of its own that has changed one row
        watched = _watched[key[0]]
    own: Change | None = (act.waiting or {}).get(key)
    rows = _take_rows(act, key) if act.waiting else {}
    message = instance.get_change_message()
    if message.startswith(_RECORDED) and own is None:
        return
    verb = own.verb if own else _VERBS.get(instance.action_flag, "change")
    verb = _VERBS_OF_MESSAGES.get(message, verb)
    if verb == "change" and not (own or rows or instance.change_message.strip("[]")):
        return  # a form without a change
    record_event(
        f"{watched.area if watched else _areas.get(kind, 'admin')}.{verb}",
        target=key,
        actor=instance.user,
        subject=own.subject if own else None,
        before=own.before if own else None,
        after=own.after if own else None,
        details={"message": message, "rows": rows},
    )
