"""Actions on the selected rows of a list: ask before they act, and say what they did.

An action that destroys, or that needs a value, shows a page with the rows first; the
page posts the same selection again, confirmed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.auth.models import Group
from django.core.exceptions import ValidationError
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

MAX_NAMED = 50  # rows that the page names
CONFIRMED = "confirmed"


def is_confirmed(request: HttpRequest) -> bool:
    return CONFIRMED in request.POST


def ask_about_rows(
    model_admin: admin.ModelAdmin,
    request: HttpRequest,
    rows: QuerySet[Any],
    *,
    title: Any,
    effect: Any,
    form: forms.Form | None = None,
) -> HttpResponse:
    """The page that posts the action again, confirmed and with the form's values."""
    count = rows.count()
    context = {
        **model_admin.admin_site.each_context(request),
        "opts": model_admin.opts,
        "title": title,
        "effect": effect,
        "form": form,
        "rows": rows[:MAX_NAMED],
        "count": count,
        "unnamed": max(count - MAX_NAMED, 0),
        "action": request.POST.get("action", ""),
        "select_across": request.POST.get("select_across", "0"),
        "selected": request.POST.getlist(ACTION_CHECKBOX_NAME),
    }
    return TemplateResponse(request, "admin/row_action.html", context)


def filled_form(
    request: HttpRequest, form_class: type[forms.Form], **kwargs: Any
) -> forms.Form:
    """Bound once the page is posted."""
    return form_class(request.POST if is_confirmed(request) else None, **kwargs)


def report_rows(
    model_admin: admin.ModelAdmin,
    request: HttpRequest,
    done: str,
    left_out: Counter[str],
    *,
    any_done: bool,
) -> None:
    """One sentence: what was done, and how many rows were left out, with the reasons.

    `done` has no full stop.
    """
    text = f"{done}."
    if left_out:
        reasons = ", ".join(f"{count} {why}" for why, count in left_out.items())
        text = _("%(done)s; left out: %(reasons)s.") % {
            "done": done,
            "reasons": reasons,
        }
    level = messages.SUCCESS if any_done else messages.WARNING
    model_admin.message_user(request, text, level)


Row = TypeVar("Row", bound=Model)


def change_each(
    rows: Iterable[Row], change: Callable[[Row], str]
) -> tuple[int, Counter[str]]:
    """Call `change` for each row: it returns "", or why it leaves the row out. Returns
    the number of changed rows, and the reasons with theirs."""
    left_out: Counter[str] = Counter()
    count = 0
    for row in rows:
        if why := change(row):
            left_out[why] += 1
        else:
            count += 1
    return count, left_out


def regroup_each(
    rows: Iterable[Row],
    chosen: Mapping[str, Any],
    set_groups: Callable[[Row, set[Group]], str],
) -> tuple[int, Counter[str]]:
    """As `change_each`, for the groups to `add` and to `remove`."""
    added, removed = set(chosen["add"]), set(chosen["remove"])

    def change(row: Any) -> str:
        before = set(row.groups.all())
        after = (before | added) - removed
        if after == before:
            return _("had these groups already")
        return set_groups(row, after)

    return change_each(rows, change)


def switch_enabled(
    model_admin: admin.ModelAdmin, request: HttpRequest, rows: QuerySet, *, on: bool
) -> None:
    """Switch the rows on or off, and say how many were so already."""
    changed = list(rows.exclude(enabled=on))
    same = rows.filter(enabled=on).count()
    for row in changed:
        row.enabled = on
        row.save(update_fields=["enabled"])
        model_admin.log_change(request, row, [{"changed": {"fields": ["enabled"]}}])
    count = len(changed)
    done = _("%(count)d switched on") if on else _("%(count)d switched off")
    why = _("switched on already") if on else _("switched off already")
    report_rows(
        model_admin,
        request,
        done % {"count": count},
        Counter({why: same} if same else {}),
        any_done=bool(count),
    )


class GroupRightsForm(forms.Form):
    add = forms.ModelMultipleChoiceField(
        Group.objects.order_by("name"),
        label=gettext_lazy("Add groups"),
        required=False,
        help_text=gettext_lazy(
            "What everybody may use, only these groups may use from then on."
        ),
    )
    remove = forms.ModelMultipleChoiceField(
        Group.objects.order_by("name"),
        label=gettext_lazy("Remove groups"),
        required=False,
    )

    def clean(self) -> dict[str, Any]:
        found: dict[str, Any] = super().clean() or {}
        added, removed = found.get("add") or (), found.get("remove") or ()
        if not added and not removed and not self.errors:
            raise ValidationError(_("Choose at least one group."))
        if both := set(added) & set(removed):
            names = ", ".join(sorted(group.name for group in both))
            text = _("Add or remove a group, not both: %(names)s.")
            raise ValidationError(text, params={"names": names})
        return found


class GroupRightsMixin(admin.ModelAdmin):
    """Adds the action that changes which groups may use the rows (`groups`)."""

    def has_grant_permission(self, request: HttpRequest) -> bool:
        return super().has_change_permission(request)

    def set_groups(self, request: HttpRequest, row: Any, groups: set[Group]) -> None:
        row.groups.set(groups)
        self.log_change(request, row, [{"changed": {"fields": ["groups"]}}])

    @admin.action(
        description=gettext_lazy("Change which groups may use them…"),
        permissions=["grant"],
    )
    def change_groups(
        self, request: HttpRequest, rows: QuerySet[Any]
    ) -> HttpResponse | None:
        form = filled_form(request, GroupRightsForm)
        if not form.is_bound or not form.is_valid():
            return ask_about_rows(
                self,
                request,
                rows,
                title=_("Change which groups may use them"),
                effect=_(
                    "A row that would lose its last group is left out, because then"
                    " everybody could use it."
                ),
                form=form,
            )
        self._change_each(request, rows, form.cleaned_data)
        return None

    def _change_each(
        self, request: HttpRequest, rows: QuerySet[Any], chosen: dict[str, Any]
    ) -> None:
        def set_groups(row: Any, after: set[Group]) -> str:
            if not after:
                return _("would be open to everybody")
            self.set_groups(request, row, after)
            return ""

        count, left_out = regroup_each(rows, chosen, set_groups)
        text = ngettext(
            "Groups of %(count)d row changed", "Groups of %(count)d rows changed", count
        )
        done = text % {"count": count}
        report_rows(self, request, done, left_out, any_done=bool(count))


def refusal_of(exc: ValidationError) -> str:
    """A validation error as a reason in the report's sentence."""
    return " ".join(exc.messages).rstrip(".")


def change_row(row: Model, values: dict[str, Any]) -> str:
    """Validate and save these columns of a row; "" or why they do not fit."""
    for name, value in values.items():
        setattr(row, name, value)
    try:
        row.full_clean(validate_unique=True)
    except ValidationError as exc:
        return refusal_of(exc)
    row.save(update_fields=[*values])
    return ""
