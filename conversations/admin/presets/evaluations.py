"""Admin pages of a preset's evaluations: sets with their cases, runs and results."""

from __future__ import annotations

from itertools import groupby
from typing import Any

from django.contrib import messages
from django.core.exceptions import PermissionDenied, ValidationError
from django.db import transaction
from django.db.models import Count, Q, Sum
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.urls import URLPattern
from django.utils.translation import gettext_lazy as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST

from conversations.admin.presets.drafts import (
    OVERRIDE,
    DraftsAdmin,
    draft_content,
    find_draft,
)
from conversations.forms.draft_forms import EvaluationSetForm, RunForm, case_forms
from conversations.models.preset import Preset
from conversations.models.staff.evaluation import (
    NO_JUDGE,
    EvaluationAnswer,
    EvaluationRun,
    EvaluationSet,
    content_digest,
)

NEWEST = 50  # runs on the page
MAX_SHOWN = 5_000  # characters of an answer on the page


class EvaluationsAdmin(DraftsAdmin):
    """Pages below a preset's page. Who may change a preset may use them."""

    def get_urls(self) -> list[URLPattern]:
        sets, runs = "evaluations/<int:number>", "runs/<int:number>"
        return [
            self.page_url("evaluations", never_cache(self.evaluations_view)),
            self.page_url("evaluations/add", self.set_view),
            self.page_url(f"{sets}/edit", self.set_view),
            self.page_url(f"{sets}/remove", require_POST(self.remove_view)),
            self.page_url(f"{sets}/run", require_POST(self.run_view)),
            self.page_url(f"{runs}/results", never_cache(self.results_view)),
            self.page_url(f"{runs}/cancel", require_POST(self.cancel_view)),
            *super().get_urls(),
        ]

    # Sets

    def evaluations_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        preset = self.find_changeable(request, pk)
        sets = preset_sets(preset).annotate(case_count=Count("cases"))
        runs = EvaluationRun.objects.filter(evaluation_set__preset=preset)
        runs = runs.select_related("evaluation_set", "created_by")
        context = {
            "row": preset,
            "sets": sets.select_related("judge__provider"),
            "runs": runs.defer("content", "live_content")[:NEWEST],
            "run_form": RunForm(),
            "has_draft": find_draft(preset) is not None,
            "digest": content_digest(draft_content(preset)),
            "may_override": request.user.has_perm(OVERRIDE),
        }
        title = _("Evaluations of %(row)s") % {"row": preset}
        return self.show_page(request, "evaluations", title, context)

    def set_view(self, request: HttpRequest, pk: int, number: int = 0) -> HttpResponse:
        preset = self.find_changeable(request, pk)
        found = EvaluationSet(preset=preset)
        if number:
            found = get_object_or_404(preset_sets(preset), pk=number)
        data = request.POST if request.method == "POST" else None
        override = request.user.has_perm(OVERRIDE)
        # First: the set's form writes what is sent to `found`.
        cases = case_forms(data, found, may_override=override)
        form = EvaluationSetForm(
            data, instance=found, user=request.user, may_override=override
        )
        if data is not None and _is_complete(form, cases):
            with transaction.atomic():
                form.save()
                cases.save()
            self.log_change(request, preset, f"Evaluation {found.name!r} saved.")
            return redirect("admin:conversations_preset_evaluations", pk)
        context = {
            "row": preset,
            "form": form,
            "cases": cases,
            "found": found,
            "is_read_only": not cases.can_delete,
        }
        title = found.name or _("New evaluation")
        return self.show_page(request, "evaluation_set", title, context)

    def remove_view(self, request: HttpRequest, pk: int, number: int) -> HttpResponse:
        preset = self.find_changeable(request, pk)
        found = get_object_or_404(preset_sets(preset), pk=number)
        if found.blocks_publishing and not request.user.has_perm(OVERRIDE):
            raise PermissionDenied
        name = found.name
        found.delete()
        self.log_change(request, preset, f"Evaluation {name!r} removed.")
        return redirect("admin:conversations_preset_evaluations", pk)

    # Runs

    def run_view(self, request: HttpRequest, pk: int, number: int) -> HttpResponse:
        preset = self.find_changeable(request, pk)
        found = get_object_or_404(preset_sets(preset), pk=number)
        page, form = "admin:conversations_preset_evaluations", RunForm(request.POST)
        if not form.is_valid():
            messages.error(request, _("The budget is a number of at least 0."))
            return redirect(page, pk)
        given = form.cleaned_data
        # Without a draft the live version is what is asked anyway, and only once.
        names_live = given["with_live"] or find_draft(preset) is None
        content = draft_content(preset)
        try:
            self.check_choices(request, preset, content)
            run = EvaluationRun.begin(
                found,
                content,
                live_content=preset.content() if names_live else None,
                budget=given["budget"],
                created_by=request.user,
            )
        except ValidationError as exc:
            messages.error(request, " ".join(exc.messages))
            return redirect(page, pk)
        self.log_change(request, preset, f"Evaluation {found.name!r} begun.")
        return redirect("admin:conversations_preset_runs_results", pk, run.pk)

    def results_view(self, request: HttpRequest, pk: int, number: int) -> HttpResponse:
        preset = self.find_changeable(request, pk)
        run = _find_run(preset, number)
        answers = run.answers.order_by("number", "side")
        context = {
            "row": preset,
            "run": run,
            "progress": progress_of(run),
            "cases": [
                (number, {row.side: row for row in rows})
                for number, rows in groupby(answers, lambda row: row.number)
            ],
            "has_live": run.has_live,
            "heading": _("Live version") if run.is_of_live else _("Draft"),
            "max_shown": MAX_SHOWN,
            "is_over": run.is_finished,
        }
        page = "_results" if "fragment" in request.GET else "results"
        return self.show_page(request, page, str(run), context)

    def cancel_view(self, request: HttpRequest, pk: int, number: int) -> HttpResponse:
        preset = self.find_changeable(request, pk)
        run = _find_run(preset, number)
        rows = EvaluationRun.objects.filter(
            pk=run.pk, state__in=EvaluationRun.UNFINISHED
        )
        if rows.update(cancel_requested=True):
            self.log_change(request, preset, f"Run {run.pk} cancelled.")
            messages.success(
                request, _("Stopping; the answer that is made is interrupted.")
            )
        return redirect("admin:conversations_preset_runs_results", pk, number)


def _is_complete(form: EvaluationSetForm, cases: Any) -> bool:
    """Whether all of it is valid and the rubrics have their judge; else `form` or
    `cases` has the errors."""
    is_valid = all([form.is_valid(), cases.is_valid()])
    if is_valid and form.cleaned_data["judge"] is None and _has_rubric(cases):
        form.add_error("judge", NO_JUDGE)
        return False
    return is_valid


def _has_rubric(cases: Any) -> bool:
    rows = (
        each.cleaned_data for each in cases.forms if each not in cases.deleted_forms
    )
    return any(row.get("rubric") for row in rows)


def preset_sets(preset: Preset) -> Any:
    return EvaluationSet.objects.filter(preset=preset)


def _find_run(preset: Preset, pk: int) -> EvaluationRun:
    rows = EvaluationRun.objects.select_related("evaluation_set", "created_by")
    return get_object_or_404(rows, pk=pk, evaluation_set__preset=preset)


def progress_of(run: EvaluationRun) -> dict[str, Any]:
    """Numbers of answers, the cost, and the percentage that is over. One query."""
    State = EvaluationAnswer.State
    found = run.answers.aggregate(
        total=Count("pk"),
        over=Count("pk", filter=~Q(state=State.PENDING)),
        passed=Count("pk", filter=Q(state=State.PASSED)),
        cost=Sum("cost"),
    )
    share = found["over"] / found["total"] if found["total"] else 1
    return {**found, "percent": round(100 * share, 1)}
