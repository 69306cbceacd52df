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
        _("202 means pending"),
        default=False,
        help_text=_(
            "The response “202 Accepted” is not the result: the server continues its"
            " work, and Parley polls for the result or receives it at a callback URL."
        ),
    )
    job_pointer = models.CharField(
        _("pointer to the job"),
        max_length=500,
        blank=True,
        validators=[_POINTER],
        help_text=_(
            "JSON Pointer, in the 202 response, to the URL of the result or to the id"
            " of the job; empty for the header Location."
        ),
    )
    job_url = models.CharField(
        _("URL of a job"),
        max_length=2000,
        blank=True,
        help_text=_(
            "URL of a job with its id, such as https://host/jobs/{id}; empty if the"
            " response has the complete URL."
        ),
    )
    state_pointer = models.CharField(
        _("pointer to the state"),
        max_length=500,
        blank=True,
        validators=[_POINTER],
        help_text=_(
            "JSON Pointer, in the response of the job's URL, to the state of the job;"
            " empty if the status 202 means that it is not done."
        ),
    )
    pending_states = models.CharField(
        _("pending states"),
        max_length=500,
        blank=True,
        help_text=_(
            "Values of the state that mean not done, separated by commas, such as"
            " queued, running."
        ),
    )
    poll_after = models.FloatField(
        _("polling interval"),
        null=True,
        blank=True,
        validators=[MinValueValidator(1), MaxValueValidator(60 * 60)],
        help_text=_(
            "Seconds between polls if the server sends no Retry-After; empty for 10."
        ),
    )
    callback_place = models.CharField(
        _("callback URL"),
        max_length=200,
        blank=True,
        help_text=_(
            "Where the request carries the URL to which the server may post the"
            " result, such as header:X-Callback-URL, body:callback_url or"
            " query:callback; needs PUBLIC_URL. Empty to send no callback URL."
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
        """Yield the invalid fields, each with a sentence that says what is wrong."""
        if self.job_url:
            if PLACEHOLDER.findall(self.job_url) != ["id"]:
                yield "job_url", "Write {id} exactly once, in the path."
            else:
                yield from (("job_url", text) for text in url_problems(self.job_url))
        if self.job_url and not self.job_pointer:
            yield "job_pointer", "Enter the pointer to the id in the response."
        if bool(self.state_pointer) != bool(self.pending_states.strip()):
            yield (
                "pending_states",
                "Enter both the pointer to the state and the pending states, or"
                " neither.",
            )
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
            yield (
                "One argument is the whole body, so the callback URL cannot be in the"
                " body."
            )
        elif location.kind == "header":
            yield from header_problems({location.name: ""})


#: The fields that staff edit, in the order of the form.
ASYNC_FIELDS = (
    "async_answers",
    "job_pointer",
    "job_url",
    "state_pointer",
    "pending_states",
    "poll_after",
    "callback_place",
)
