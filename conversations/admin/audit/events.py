"""Admin of the audit log: filters, search, and export as lines of JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from django.apps import apps
from django.contrib import admin
from django.contrib.auth import get_user_model
from django.core.exceptions import PermissionDenied
from django.db.models import OuterRef, Q, QuerySet, Subquery
from django.http import HttpRequest, HttpResponse, QueryDict
from django.urls import URLPattern, path
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _
from django.views.decorators.http import require_GET

from conversations.admin.audit.action_labels import label_action
from conversations.audit.chain import describe_event, find_head
from conversations.audit.models import AuditEvent
from conversations.audit.record import record_event
from conversations.http.streamed_download import download
from llm.admin.bases import ReadOnlyAdmin

EXPORT = "audit.export_auditevent"
PIECE = 500  # events that one query of an export reads


class _ValueFilter(admin.SimpleListFilter):
    """Filters by one of the values that a column has."""

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(value, value) for value in _distinct(str(self.parameter_name))]

    def queryset(self, request: HttpRequest, queryset: QuerySet) -> QuerySet:
        if not (value := self.value()):
            return queryset
        return queryset.filter(**{str(self.parameter_name): value})


class ActionFilter(_ValueFilter):
    title = _("action")
    parameter_name = "action"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        codes = super().lookups(request, model_admin)
        labels = ((code, label_action(code)) for code, _same in codes)
        return sorted(labels, key=_by_label)


class KindFilter(_ValueFilter):
    title = _("kind of object")
    parameter_name = "target_type"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        kinds = super().lookups(request, model_admin)
        return sorted(
            ((kind, _name_kind(kind)) for kind, _same in kinds), key=_by_label
        )


def _distinct(column: str) -> Iterator[str]:
    """One look into the index for each value; DISTINCT would read all events."""
    rows, last = AuditEvent.objects.order_by(column).values_list(column, flat=True), ""
    while (value := rows.filter(**{f"{column}__gt": last}).first()) is not None:
        yield value
        last = value


def _describe(filters: QueryDict) -> str:
    """With keys for the names of users, which would outlive an erasure here."""
    model = get_user_model()
    words = filters.get("q", "").split()
    users = model._default_manager.filter(**{f"{model.USERNAME_FIELD}__in": words})
    keys = dict(users.values_list(model.USERNAME_FIELD, "pk"))
    found = filters.copy()
    if keys:
        found["q"] = " ".join(
            f"user {keys[word]}" if word in keys else word for word in words
        )
    return found.urlencode()


@admin.register(AuditEvent)
class AuditEventAdmin(ReadOnlyAdmin):
    list_display = [
        "at",
        "actor_name",
        "action_label",
        "target",
        "subject_name",
        "outcome",
        "channel",
    ]
    list_display_links = ["at", "action_label"]
    list_filter = ["at", ActionFilter, KindFilter, "channel", "outcome"]
    list_select_related = ["text"]
    date_hierarchy = "at"
    ordering = ["-id"]
    search_fields = ["action", "=target_id"]
    search_help_text = _(
        "The name of a user who acted or is concerned, the id of an object, or words"
        " of the action."
    )
    readonly_fields = [
        "at",
        "action_label",
        "action",
        "outcome",
        "channel",
        "actor_name",
        "identity",
        "subject_name",
        "target",
        "details",
        "position",
        "hash",
    ]
    fields = [*readonly_fields]
    change_list_template = "admin/audit/change_list.html"

    class Media:
        css = {"all": ["css/tool-admin.css"]}

    def get_queryset(self, request: HttpRequest) -> QuerySet[AuditEvent]:
        model = get_user_model()
        name = model._default_manager.filter(pk=OuterRef("subject")).values(
            model.USERNAME_FIELD
        )
        rows: QuerySet[AuditEvent] = super().get_queryset(request)
        rows = rows.annotate(name_of_subject=Subquery(name))
        return rows

    def find_ids(self, rows: QuerySet[Any], term: str) -> set[Any]:
        found = super().find_ids(rows, term)
        model = get_user_model()
        users = model._default_manager.filter(**{model.USERNAME_FIELD: term})
        if keys := list(users.values_list("pk", flat=True)):
            concerned = rows.filter(Q(actor__in=keys) | Q(subject__in=keys))
            found.update(concerned.order_by("-id").values_list("pk", flat=True)[:1000])
        return found

    def get_urls(self) -> list[URLPattern]:
        export = self.admin_site.admin_view(require_GET(self.export_view))
        return [
            path("export/", export, name="audit_auditevent_export"),
            *super().get_urls(),
        ]

    def changelist_view(
        self, request: HttpRequest, extra_context: Any = None
    ) -> HttpResponse:
        context = {
            **(extra_context or {}),
            "may_export": request.user.has_perm(EXPORT),
            "query": request.GET.urlencode(),
        }
        return super().changelist_view(request, context)

    def export_view(self, request: HttpRequest) -> Any:
        """The events that the list's filters show, oldest first, one line each."""
        if not request.user.has_perm(EXPORT):
            raise PermissionDenied
        rows = self.get_changelist_instance(request).get_queryset(request)
        position, head = find_head()
        record_event(
            "log.export",
            target=("audit.auditevent", ""),
            details={"filters": _describe(request.GET), "head": f"{position}:{head}"},
        )
        name = f"parley-audit-{timezone.now():%Y%m%dT%H%M%S}.jsonl"
        return download(request, _lines(rows), "application/jsonl", name)

    # Columns

    @admin.display(description=_("what was done"), ordering="action")
    def action_label(self, event: AuditEvent) -> str:
        return label_action(event.action)

    @admin.display(description=_("who"))
    def actor_name(self, event: AuditEvent) -> str:
        name = _read(event, "identity").get("name", "")
        return str(name or event.actor or "–")

    @admin.display(description=_("concerned user"))
    def subject_name(self, event: Any) -> str:
        """The name that the account has now; of an erased one its number."""
        if event.subject is None:
            return "–"
        return str(event.name_of_subject or event.subject)

    @admin.display(description=_("object"))
    def target(self, event: AuditEvent) -> str:
        return f"{_name_kind(event.target_type)} {event.target_id}".strip() or "–"

    @admin.display(description=_("identity"))
    def identity(self, event: AuditEvent) -> SafeString | str:
        return _show(event, "identity")

    @admin.display(description=_("details"))
    def details(self, event: AuditEvent) -> SafeString | str:
        return _show(event, "details")


def _name_kind(kind: str) -> str:
    """ "usage limit" for "conversations.usagelimit"; the log outlives its models."""
    try:
        return str(apps.get_model(kind)._meta.verbose_name)
    except (LookupError, ValueError):
        return kind


def _by_label(choice: tuple[str, str]) -> str:
    return choice[1].casefold()


def _read(event: AuditEvent, name: str) -> dict[str, Any]:
    text = getattr(getattr(event, "text", None), name, None)
    found: dict[str, Any] = json.loads(text) if text else {}
    return found


def _show(event: AuditEvent, name: str) -> SafeString | str:
    if getattr(getattr(event, "text", None), name, None) is None:
        return str(_("erased"))
    values = json.dumps(_read(event, name), ensure_ascii=False, indent=2)
    return format_html('<pre class="content">{}</pre>', values)


def _lines(rows: QuerySet[AuditEvent]) -> Iterator[bytes]:
    last = 0
    chosen = rows.order_by("id").select_related("text")
    while batch := list(chosen.filter(pk__gt=last)[:PIECE]):
        for event in batch:
            texts = {name: _read(event, name) for name in ("identity", "details")}
            line = describe_event(event) | texts
            yield f"{json.dumps(line, ensure_ascii=False)}\n".encode()
        last = batch[-1].pk
