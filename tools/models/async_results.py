"""Database columns that describe how to fetch an HTTP tool's asynchronous result."""

from __future__ import annotations

from collections.abc import Iterator

from django.core.validators import MaxValueValidator, MinValueValidator, RegexValidator
from django.db import models
from django.utils.translation import gettext_lazy as _

from tools.http.async_result import CALLBACK_LOCATIONS, AsyncResultSpec
from tools.http.request_template import (
    METHODS_WITHOUT_BODY,
    PLACEHOLDER,
    ParameterLocation,
    RequestTemplate,
)
from tools.http.validation import header_problems, url_problems

DEFAULT_POLL_AFTER = 10.0  # seconds

_POINTER = RegexValidator(r"\A/", _("Write a pointer such as /data/items."))


class AsyncAnswers(models.Model):
    async_answers = models.BooleanField(
        _("202 means later"),
        default=False,
        help_text=_(
            "An answer “202 Accepted” is no result: the work goes on over there, and"
            " the result is asked for or posted to us."
        ),
    )
    job_pointer = models.CharField(
        _("pointer to the job"),
        max_length=500,
        blank=True,
        validators=[_POINTER],
        help_text=_(
            "JSON Pointer, in that first answer, to the address of the result or to the"
            " id of the job; empty for the header Location."
        ),
    )
    job_url = models.CharField(
        _("URL of a job"),
        max_length=2000,
        blank=True,
        help_text=_(
            "Where an id leads, such as https://host/jobs/{id}; empty where the answer"
            " has the whole address."
        ),
    )
    state_pointer = models.CharField(
        _("pointer to the state"),
        max_length=500,
        blank=True,
        validators=[_POINTER],
        help_text=_(
            "JSON Pointer, in what the job's address answers, to what tells whether it"
            " is done; empty where the status 202 tells that it is not."
        ),
    )
    pending_states = models.CharField(
        _("not done while it is"),
        max_length=500,
        blank=True,
        help_text=_("Values there, with commas between, such as queued, running."),
    )
    poll_after = models.FloatField(
        _("ask every"),
        null=True,
        blank=True,
        validators=[MinValueValidator(1), MaxValueValidator(60 * 60)],
        help_text=_(
            "Seconds, where the server does not say by Retry-After; empty for 10."
        ),
    )
    callback_place = models.CharField(
        _("callback URL"),
        max_length=200,
        blank=True,
        help_text=_(
            "Where our own address goes to which the result may be posted, such as"
            " header:X-Callback-URL, body:callback_url or query:callback; needs"
            " PUBLIC_URL. Empty for nowhere."
        ),
    )

    class Meta:
        abstract = True

    @property
    def async_result(self) -> AsyncResultSpec | None:
        if not self.async_answers:
            return None
        states = (each.strip() for each in self.pending_states.split(","))
        return AsyncResultSpec(
            job_pointer=self.job_pointer,
            job_url=self.job_url,
            state_pointer=self.state_pointer,
            pending_states=frozenset(filter(None, states)),
            poll_after=self.poll_after or DEFAULT_POLL_AFTER,
            callback_location=self._callback_location(),
        )

    def find_async_problems(
        self, definition: RequestTemplate
    ) -> Iterator[tuple[str, str]]:
        """Yields the invalid fields, each with a sentence that says what is wrong."""
        if self.job_url:
            if PLACEHOLDER.findall(self.job_url) != ["id"]:
                yield "job_url", "Write {id} once, in the path."
            else:
                yield from (("job_url", text) for text in url_problems(self.job_url))
        if self.job_url and not self.job_pointer:
            yield "job_pointer", "Say where the id stands in the answer."
        if bool(self.state_pointer) != bool(self.pending_states.strip()):
            yield "pending_states", "Pointer and values go together."
        if self.callback_place:
            found = self._find_callback_problems(definition)
            yield from (("callback_place", text) for text in found)

    def _callback_location(self) -> ParameterLocation | None:
        if not self.callback_place:
            return None
        return ParameterLocation.parse("callback_url", self.callback_place)

    def _find_callback_problems(self, definition: RequestTemplate) -> Iterator[str]:
        try:
            location = self._callback_location()
        except ValueError as exc:
            yield f"{exc}."
            return
        assert location is not None
        if location.kind not in CALLBACK_LOCATIONS:
            yield f"Choose one of {', '.join(CALLBACK_LOCATIONS)}."
        elif location.kind == "body" and definition.method in METHODS_WITHOUT_BODY:
            yield f"{definition.method} has no body."
        elif location.kind == "body" and definition.has_whole_body:
            yield "One argument is the whole body: nothing can stand beside it."
        elif location.kind == "header":
            yield from header_problems({location.name: ""})


#: The fields that staff edit, in the order of the form.
ASYNC_FIELDS = tuple(field.name for field in AsyncAnswers._meta.local_fields)
