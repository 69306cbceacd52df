"""Drafts of presets, and the evaluations that a draft is to pass before it is live."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.validators import MaxLengthValidator, MinValueValidator
from django.db import models, transaction
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from conversations.models.preset import Preset
from conversations.models.staff.preset_content import FIELDS, Content
from conversations.models.staff.versions import MAX_NOTE, PresetVersion
from llm.models import LanguageModel
from llm.wire.json_schema.validation import compile_schema
from tools.json_schema.schema_mistakes import rule_mistakes

MAX_INPUT = 100_000  # characters
MAX_RUBRIC = 10_000
MAX_PATTERN = 1_000
MAX_CASES = 200  # of a run
PREVIEW_STALE = timedelta(seconds=20)  # silent so long, its process has ended
NO_JUDGE = _("Choose the model that judges by the rubrics.")
#: What people see of a preset, which no evaluation tries.
SHOWN = ("label", "description")


class NotPublishable(Exception):
    """The text says why a content may not go live."""


class DraftChanged(Exception):
    """The draft or the live preset has changed since it was read."""


def digest_of(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def content_digest(content: Mapping[str, Any]) -> str:
    return digest_of({name: content.get(name) for name in FIELDS if name not in SHOWN})


class PresetDraft(models.Model):
    """A change of a preset that is not live yet."""

    preset = models.OneToOneField(Preset, models.CASCADE, related_name="draft")
    content = models.JSONField()
    note = models.CharField(max_length=MAX_NOTE, blank=True)
    made_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.SET_NULL, null=True, related_name="+"
    )
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        default_permissions = ()  # the preset's permissions apply

    def __str__(self) -> str:
        return f"draft of {self.preset}"

    @property
    def state(self) -> str:
        """Changes with each change of the draft or of the live preset."""
        return digest_of([self.content, self.note, self.preset.content()])

    @classmethod
    @transaction.atomic
    def replace(cls, preset: Preset, *, seen: str, **fields: Any) -> None:
        """Save the draft, if its `state` is still `seen`; "" is that of no draft.
        Raises DraftChanged."""
        locked = Preset.objects.select_for_update(of=("self",)).get(pk=preset.pk)
        draft = cls.objects.filter(preset=locked).first()
        if seen != (draft.state if draft else ""):
            raise DraftChanged
        cls.objects.update_or_create(preset=locked, defaults=fields)

    @classmethod
    @transaction.atomic
    def discard(cls, preset: Preset, *, seen: str) -> bool:
        """Delete the draft, if its `state` is still `seen`; whether there was one.
        Raises DraftChanged."""
        locked = Preset.objects.select_for_update(of=("self",)).get(pk=preset.pk)
        draft = cls.objects.filter(preset=locked).first()
        if draft is None:
            return False
        if draft.state != seen:
            raise DraftChanged
        draft.delete()
        return True

    @transaction.atomic
    def publish(self, user: Any, *, seen: str, may_override: bool) -> list[str]:
        """Make the draft live, as it was when its `state` was `seen`.

        Returns the names of rows that no longer exist. Raises DraftChanged,
        NotPublishable and ValidationError.
        """
        preset = Preset.objects.select_for_update(of=("self",)).get(pk=self.preset_id)
        draft = PresetDraft.objects.filter(preset=preset).first()
        if draft is None or draft.state != seen:
            raise DraftChanged
        if not may_override:
            check_publishable(preset, draft.content)
        before = PresetVersion.take_snapshot(preset)
        gone = preset.set_content(draft.content)
        PresetVersion.objects.record(preset, user, draft.note, before=before)
        draft.delete()
        return gone


def check_publishable(preset: Preset, content: Content) -> None:
    """Raises NotPublishable unless each set that blocks publishing was passed by just
    this content, with the cases as they are."""
    wanted = content_digest(content)
    if wanted == content_digest(preset.content()):
        return  # only what people see of it changes
    for each in EvaluationSet.objects.filter(preset=preset, blocks_publishing=True):
        passed = each.runs.filter(
            content_digest=wanted, cases_digest=each.cases_digest(), passed=True
        )
        if not passed.exists():
            text = _("The evaluation “%(name)s” has not passed with this content.")
            raise NotPublishable(text % {"name": each.name})


class PreviewChatQuerySet(models.QuerySet["PreviewChat"]):
    def running(self) -> PreviewChatQuerySet:
        """Those whose answer a thread makes; others with a job were interrupted."""
        return self.exclude(job="").filter(seen_at__gt=timezone.now() - PREVIEW_STALE)

    def of_job(self, pk: int, job: str) -> PreviewChatQuerySet:
        """The chat while it waits for the answer that this job makes."""
        return self.filter(pk=pk, job=job)

    def stop(self) -> int:
        """End the answers that are being made; their questions stay."""
        return self.exclude(job="").update(job="", error=str(_("Stopped.")))


class PreviewChat(models.Model):
    """What a member of staff and a draft have said to each other."""

    preset = models.ForeignKey(Preset, models.CASCADE, related_name="+")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="+")
    items = models.JSONField(default=list)
    updated_at = models.DateTimeField(auto_now=True)
    # The answer that is being made, or that failed
    question = models.TextField(blank=True, default="", db_default="")
    job = models.CharField(max_length=32, blank=True, default="", db_default="")
    partial = models.TextField(blank=True, default="", db_default="")
    error = models.CharField(max_length=500, blank=True, default="", db_default="")
    seen_at = models.DateTimeField(null=True)  # when its thread last wrote
    #: Model, tokens and cost of the last answer.
    figures = models.JSONField(null=True)

    objects = PreviewChatQuerySet.as_manager()

    class Meta:
        default_permissions = ()  # the preset's permissions apply
        constraints = [
            models.UniqueConstraint(
                fields=["preset", "user"], name="conversations_one_preview_chat"
            )
        ]

    def __str__(self) -> str:
        return f"preview chat {self.pk}"  # its texts must not get into logs

    @property
    def is_running(self) -> bool:
        return bool(self.job) and not self.is_interrupted

    @property
    def is_interrupted(self) -> bool:
        seen = self.seen_at
        return bool(self.job and seen and seen <= timezone.now() - PREVIEW_STALE)

    def begin(self, job: str, question: str) -> None:
        """Store that this job makes the answer to the question."""
        self.job, self.question, self.seen_at = job, question, timezone.now()
        self.partial = self.error = ""
        self.figures = None
        self.save()


class EvaluationSet(models.Model):
    """Inputs with what their answers must be like."""

    preset = models.ForeignKey(
        Preset, models.CASCADE, related_name="evaluation_sets", editable=False
    )
    name = models.CharField(max_length=100)
    blocks_publishing = models.BooleanField(
        _("must pass before publishing"),
        default=False,
        help_text=_(
            "A change of the preset goes live only after it has passed this set."
        ),
    )
    judge = models.ForeignKey(
        LanguageModel,
        models.SET_NULL,
        null=True,
        blank=True,
        related_name="+",
        help_text=_("Model that judges answers by a rubric."),
    )

    class Meta:
        ordering = ["name"]
        default_permissions = ()  # the preset's permissions apply
        constraints = [
            models.UniqueConstraint(
                fields=["preset", "name"], name="conversations_evaluationset_once"
            )
        ]

    def __str__(self) -> str:
        return self.name

    def case_tables(self) -> list[dict[str, Any]]:
        return [case.as_table() for case in self.cases.all()]

    def cases_digest(self) -> str:
        return digest_of([self.judge_id, self.case_tables()])


class EvaluationCase(models.Model):
    evaluation_set = models.ForeignKey(
        EvaluationSet, models.CASCADE, related_name="cases"
    )
    input = models.TextField(
        max_length=MAX_INPUT,
        validators=[MaxLengthValidator(MAX_INPUT)],
        help_text=_("What a user writes."),
    )
    contains = models.TextField(
        blank=True,
        max_length=MAX_RUBRIC,
        validators=[MaxLengthValidator(MAX_RUBRIC)],
        help_text=_(
            "The answer has each of these lines, in any case; “|” separates"
            " alternatives of a line."
        ),
    )
    pattern = models.CharField(
        _("regular expression"),
        max_length=MAX_PATTERN,
        blank=True,
        help_text=_("It is found somewhere in the answer."),
    )
    schema = models.JSONField(
        _("JSON Schema"), null=True, blank=True, help_text=_("The answer is such JSON.")
    )
    rubric = models.TextField(
        blank=True,
        max_length=MAX_RUBRIC,
        validators=[MaxLengthValidator(MAX_RUBRIC)],
        help_text=_("What the judge looks for in the answer."),
    )

    class Meta:
        ordering = ["pk"]
        default_permissions = ()  # the preset's permissions apply

    def __str__(self) -> str:
        return f"case {self.pk}"

    def as_table(self) -> dict[str, Any]:
        names = ("input", "contains", "pattern", "schema", "rubric")
        return {name: getattr(self, name) for name in names}

    def clean(self) -> None:
        texts = (self.contains, self.pattern, self.rubric)
        if self.schema is None and not any(text.strip() for text in texts):
            raise ValidationError(_("Write what the answer must be like."))
        if self.pattern:
            try:
                compile_schema({"type": "string", "pattern": self.pattern})
            except ValueError as exc:
                text = _("This is no regular expression that can be run safely.")
                raise ValidationError({"pattern": text}) from exc
        if self.schema is not None and (wrong := list(rule_mistakes(self.schema))):
            raise ValidationError({"schema": wrong[0][1]})


class EvaluationRun(models.Model):
    """A set over a content, and over the live one beside it if that is another."""

    class State(models.TextChoices):
        QUEUED = "queued", _("queued")
        RUNNING = "running", _("running")
        DONE = "done", _("done")
        CANCELLED = "cancelled", _("cancelled")
        BUDGET = "budget", _("ended by its budget")

    UNFINISHED = (State.QUEUED, State.RUNNING)

    evaluation_set = models.ForeignKey(
        EvaluationSet, models.CASCADE, related_name="runs"
    )
    content = models.JSONField()
    live_content = models.JSONField(null=True)  # None: only the draft
    content_digest = models.CharField(max_length=64)
    cases_digest = models.CharField(max_length=64)
    judge = models.ForeignKey(
        LanguageModel, models.SET_NULL, null=True, related_name="+"
    )
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.SET_NULL, null=True, related_name="+"
    )
    created_at = models.DateTimeField(auto_now_add=True)
    budget = models.DecimalField(
        max_digits=12,
        decimal_places=6,
        null=True,
        blank=True,
        validators=[MinValueValidator(0)],
        help_text=_("USD; no further call once it is spent."),
    )
    state = models.CharField(max_length=10, choices=State.choices, default=State.QUEUED)
    passed = models.BooleanField(null=True)  # by the draft; None until it is known
    cancel_requested = models.BooleanField(default=False)
    lease_until = models.DateTimeField(null=True, editable=False)
    finished_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["-id"]
        default_permissions = ()  # the preset's permissions apply
        indexes = [
            models.Index(
                fields=["id"],
                condition=models.Q(state__in=["queued", "running"]),
                name="conversations_evaluation_todo",
            )
        ]

    def __str__(self) -> str:
        return f"{self.evaluation_set} {self.pk}"

    @property
    def is_finished(self) -> bool:
        return self.state not in self.UNFINISHED

    @property
    def is_of_live(self) -> bool:
        """Whether the content was the live one: there was no draft, or an equal one."""
        live = self.live_content
        return live is not None and content_digest(live) == self.content_digest

    @property
    def has_live(self) -> bool:
        """Whether the live version is asked beside the draft."""
        return self.live_content is not None and not self.is_of_live

    @classmethod
    @transaction.atomic
    def begin(
        cls, evaluation_set: EvaluationSet, content: Content, **fields: Any
    ) -> EvaluationRun:
        """`fields` may have `live_content`, `budget` and `created_by`. Raises
        ValidationError."""
        cases = evaluation_set.case_tables()
        if not cases:
            raise ValidationError(_("The evaluation has no cases."))
        if len(cases) > MAX_CASES:
            text = _("A run has at most %(count)s cases.")
            raise ValidationError(text, params={"count": MAX_CASES})
        if evaluation_set.judge is None and any(case["rubric"] for case in cases):
            raise ValidationError(NO_JUDGE)
        run = cls.objects.create(
            evaluation_set=evaluation_set,
            content=content,
            content_digest=content_digest(content),
            cases_digest=evaluation_set.cases_digest(),
            judge=evaluation_set.judge,
            **fields,
        )
        sides = ["draft", "live"] if run.has_live else ["draft"]
        EvaluationAnswer.objects.bulk_create(
            EvaluationAnswer(run=run, number=number, case=case, side=side)
            for number, case in enumerate(cases, 1)
            for side in sides
        )
        return run


class EvaluationAnswer(models.Model):
    """The answer to a case, by the draft or the live preset, and what was found."""

    class State(models.TextChoices):
        PENDING = "pending", _("pending")
        PASSED = "passed", _("passed")
        UNMET = "unmet", _("not passed")
        FAILED = "failed", _("failed")
        CANCELLED = "cancelled", _("cancelled")

    class Side(models.TextChoices):
        DRAFT = "draft", _("draft")
        LIVE = "live", _("live")

    run = models.ForeignKey(EvaluationRun, models.CASCADE, related_name="answers")
    number = models.PositiveIntegerField()
    side = models.CharField(max_length=5, choices=Side.choices)
    case = models.JSONField()  # as it was when the run began
    state = models.CharField(
        max_length=10, choices=State.choices, default=State.PENDING
    )
    error = models.CharField(max_length=500, blank=True)
    attempts = models.PositiveSmallIntegerField(default=0, db_default=0)
    text = models.TextField(blank=True)
    checks = models.JSONField(default=list)  # kind, passed and reason of each
    model_calls = models.PositiveIntegerField(default=0)
    tokens = models.PositiveBigIntegerField(default=0)
    cost = models.DecimalField(max_digits=18, decimal_places=12, null=True)
    seconds = models.FloatField(null=True)

    class Meta:
        ordering = ["number", "side"]
        default_permissions = ()  # the preset's permissions apply
        constraints = [
            models.UniqueConstraint(
                fields=["run", "number", "side"], name="conversations_evaluated_once"
            )
        ]

    def __str__(self) -> str:
        return f"answer {self.pk}"

    def describe_state(self) -> Any:
        """Its state in words. A row that is pending when its run is over never ran."""
        if self.state == self.State.PENDING and self.run.is_finished:
            return _("not run")
        return self.get_state_display()
