"""Model of the request that an HTTP tool sends, and of how its answer is read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator, RegexValidator
from django.db import models, transaction
from django.utils.translation import gettext_lazy as _

from llm.db.secret_headers import SecretHeaders
from tools.conf import settings
from tools.http.call import HttpCall
from tools.http.exchange import MAX_BODY, Limits
from tools.http.openapi import OpenApiOperation
from tools.http.request_template import BodyKind, RequestTemplate
from tools.http.result import ReadAs, ReadOptions
from tools.http.validation import (
    find_problems,
    header_problems,
    parse_locations,
    parse_networks,
)
from tools.json_schema.schema_mistakes import EMPTY, schema_mistakes
from tools.models.async_results import AsyncAnswers
from tools.models.tool import Tool
from tools.runtime_tool import Replay, RuntimeTool
from tools.validators import (
    validate_headers,
    validate_networks,
    validate_parameters,
    validate_places,
)

LARGEST_ANSWER = 20 * 1024 * 1024  # bytes

#: Methods that change nothing on the server (RFC 9110, section 9.2.1).
SAFE_METHODS = frozenset({"GET", "HEAD"})

_REPLAY_OF_METHODS: Mapping[str, Replay] = {
    "GET": "safe",
    "HEAD": "safe",
    "PUT": "idempotent",
    "DELETE": "idempotent",
}


class HttpToolQuerySet(models.QuerySet["HttpTool"]):
    @transaction.atomic
    def import_operation(
        self,
        operation: OpenApiOperation,
        *,
        secret_headers: Mapping[str, str],
        networks: str = "",
    ) -> Tool:
        """Create a disabled HTTP tool. Raises ValidationError."""
        tool = Tool(
            name=operation.name,
            kind=Tool.Kind.HTTP,
            label=operation.summary,
            description=operation.description,
            enabled=False,
        )
        tool.full_clean()
        tool.save()
        http = HttpTool(
            tool=tool,
            method=operation.method,
            url=operation.url,
            parameters=operation.parameters,
            places=operation.places,
            headers=operation.headers,
            body=operation.body,
            networks=networks,
        )
        http.set_secret_headers(secret_headers)
        http.full_clean()
        http.save()
        return tool


def no_parameters() -> dict[str, Any]:
    return dict(EMPTY)


class HttpTool(SecretHeaders, AsyncAnswers):
    """The request of a tool of kind HTTP, and how its answer is read."""

    class Method(models.TextChoices):
        GET = "GET", "GET"
        HEAD = "HEAD", "HEAD"
        POST = "POST", "POST"
        PUT = "PUT", "PUT"
        PATCH = "PATCH", "PATCH"
        DELETE = "DELETE", "DELETE"

    class Body(models.TextChoices):
        JSON = "json", _("JSON")
        FORM = "form", _("form fields")

    class ReadAs(models.TextChoices):
        AUTO = "auto", _("according to its content type")
        JSON = "json", _("JSON")
        TEXT = "text", _("text")

    tool = models.OneToOneField(Tool, models.CASCADE, related_name="http")
    method = models.CharField(max_length=10, choices=Method.choices, default=Method.GET)
    url = models.CharField(
        _("URL"),
        max_length=2000,
        help_text=_(
            "URL with placeholders in its path, such as https://host/orders/{id}. Put"
            " secrets into a secret header, not here."
        ),
    )
    parameters = models.JSONField(
        default=no_parameters,
        validators=[validate_parameters],
        help_text=_("JSON Schema of the arguments, an object."),
    )
    places = models.JSONField(
        default=dict,
        blank=True,
        validators=[validate_places],
        help_text=_(
            'Where each argument is sent, as in {"lang": "header:Accept-Language"}:'
            " path, query, query_commas, query_deep, header, body or whole_body, then a"
            " colon and its name there. An argument that is not listed goes into the"
            " path if the URL has a placeholder for it, into the query for GET, HEAD"
            " and DELETE, and into the body otherwise."
        ),
    )
    body = models.CharField(max_length=10, choices=Body.choices, default=Body.JSON)
    headers = models.JSONField(
        default=dict,
        blank=True,
        validators=[validate_headers],
        help_text=_(
            "Sent with each call. Put secrets into the secret headers, not here."
        ),
    )
    read_as = models.CharField(
        _("read the response as"),
        max_length=10,
        choices=ReadAs.choices,
        default=ReadAs.AUTO,
    )
    pointer = models.CharField(
        max_length=500,
        blank=True,
        validators=[RegexValidator(r"\A/", _("Write a pointer such as /data/items."))],
        help_text=_(
            "JSON Pointer to the part of the response that the model receives, such as"
            " /data/items; empty for all of it."
        ),
    )
    max_size = models.PositiveIntegerField(
        _("size limit"),
        default=MAX_BODY,
        validators=[MinValueValidator(1), MaxValueValidator(LARGEST_ANSWER)],
        help_text=_(
            "Maximum size of a response in bytes; a larger response is an error."
        ),
    )
    networks = models.TextField(
        _("allowed networks"),
        blank=True,
        validators=[validate_networks],
        help_text=_(
            "Private networks that this tool may reach, one per line, such as"
            " 10.1.0.0/16; the public internet is always allowed. A cloud's metadata"
            " address must be listed explicitly."
        ),
    )

    #: Set by a form: fields that it refused have their old values, with which `clean`
    #: must not compare the others.
    has_invalid_fields = False

    objects = HttpToolQuerySet.as_manager()

    class Meta:
        default_permissions = ()  # the permissions of its tool apply
        verbose_name = _("HTTP request")
        verbose_name_plural = _("HTTP request")

    def __str__(self) -> str:
        return f"{self.method} {self.url}"

    def clean(self) -> None:
        self.headers, self.places = self.headers or {}, self.places or {}
        if self.has_invalid_fields:
            return
        if any(schema_mistakes(self.parameters)) or any(header_problems(self.headers)):
            return  # the validators report it
        wrong: dict[str, list[str]] = {}
        found = (
            *find_problems(self.request_template, self.parameters, self.secret_names),
            *self.find_async_problems(self.request_template),
            *self._find_waiting_problems(),
        )
        for name, text in found:
            wrong.setdefault(name, []).append(text)
        if wrong:
            raise ValidationError(wrong)

    def _find_waiting_problems(self) -> Iterator[tuple[str, str]]:
        """Only a call in the background has a callback URL: a result that is posted
        while the model waits would find no call that takes it."""
        tool = getattr(self, "tool", None)
        if self.async_answers and self.callback_place and tool and tool.blocking:
            yield (
                "callback_place",
                "A tool that waits for the result receives none at a callback URL:"
                " choose another setting of Blocking, or leave this empty.",
            )

    @property
    def request_template(self) -> RequestTemplate:
        return RequestTemplate(
            method=self.method,
            url=self.url,
            headers=self.headers,
            arguments=self.parameters.get("properties") or {},
            locations=parse_locations(self.places)[0],
            body=cast(BodyKind, self.body),
        )

    def build_base_tool(self) -> RuntimeTool:
        replay = _REPLAY_OF_METHODS.get(self.method, "once")
        timeout = self.tool.timeout
        seconds = settings.TOOL_TIMEOUT if timeout is None else timeout
        if self.async_answers:  # the tool's timeout is that of the job
            seconds = min(seconds, settings.TOOL_TIMEOUT)
        call = HttpCall(
            name=self.tool.name,
            definition=self.request_template,
            read_options=ReadOptions(
                read_as=cast(ReadAs, self.read_as), pointer=self.pointer
            ),
            limits=Limits(size=self.max_size, total=seconds),
            networks=parse_networks(self.networks)[0],
            secret_headers=self.secret_headers or None,
            sends_key=(self.tool.replay or replay) == "idempotent",
            async_result=self.async_result,
        )
        return RuntimeTool(
            name=self.tool.name,
            description=self.tool.description,
            parameters=self.parameters,
            call=call,
            poll=call.poll if self.async_answers else None,
            replay=replay,
            risk="reads" if self.method in SAFE_METHODS else "both",
            blocking=not self.async_answers,
            approval=self.tool.usual_approval(reads_only=self.method in SAFE_METHODS),
            source=str(self),
        )
