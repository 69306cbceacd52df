"""Row of a user's last test prompt and its answers so far."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, TypedDict

from django.conf import settings
from django.db import models
from django.utils import timezone

STALE = timedelta(seconds=20)  # silent so long, its process has ended


class PromptAnswer(TypedDict):
    """What a model has answered so far, or why it did not."""

    model: int  # primary key
    name: str
    text: str
    error: str
    call: int | None  # primary key of its model call, once it is over
    is_over: bool


class PromptTestQuerySet(models.QuerySet["PromptTest"]):
    def running(self) -> PromptTestQuerySet:
        """Those that a thread works on; others without an end were interrupted."""
        return self.exclude(job="").filter(seen_at__gt=timezone.now() - STALE)

    def of_job(self, pk: int, job: str) -> PromptTestQuerySet:
        """The test while it waits for this job."""
        return self.filter(pk=pk, job=job)


class PromptTest(models.Model):
    user = models.OneToOneField(
        settings.AUTH_USER_MODEL, models.CASCADE, related_name="+"
    )
    prompt = models.TextField()
    answers: Any = models.JSONField(default=list)  # a list of `PromptAnswer`
    job = models.CharField(max_length=32, blank=True, default="")
    stop_requested = models.BooleanField(default=False)
    created_at = models.DateTimeField()
    seen_at = models.DateTimeField()  # when its thread last wrote

    objects = PromptTestQuerySet.as_manager()

    class Meta:
        default_permissions = ()  # that of models to send test prompts applies

    def __str__(self) -> str:
        return f"test prompt {self.pk}"  # its texts must not get into logs

    @property
    def is_running(self) -> bool:
        return bool(self.job) and not self.is_interrupted

    @property
    def is_interrupted(self) -> bool:
        return bool(self.job) and self.seen_at <= timezone.now() - STALE
