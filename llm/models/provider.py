"""Row of a provider: kind, address and options."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import ValidationError
from django.core.validators import (
    MaxValueValidator,
    MinValueValidator,
    RegexValidator,
)
from django.db import models
from django.db.models import JSONField
from django.utils.translation import gettext_lazy as _

from llm import providers
from llm.conf import settings
from llm.db.bound_secrets import canonical_origin
from llm.db.encrypted_field import EncryptedTextField
from llm.db.secret_headers import SecretHeaders
from llm.errors import BadRequest
from llm.forms.validators import (
    validate_address,
    validate_certificates,
    validate_headers,
    validate_object,
)
from llm.provider import Connection, Endpoint
from llm.provider import Provider as Host


def _seconds(help_text: Any) -> models.FloatField[Any, Any]:
    limits = [MinValueValidator(0.1), MaxValueValidator(86_400)]
    return models.FloatField(
        null=True, blank=True, validators=limits, help_text=help_text
    )


class Provider(SecretHeaders):
    name = models.CharField(
        max_length=100,
        unique=True,
        validators=[
            RegexValidator(
                r"\A[^\s/](?:[^/]*[^\s/])?\Z",
                _("A provider's name cannot contain a slash."),
            )
        ],
        help_text=_("Shown in front of the names of its models."),
    )
    kind = models.CharField(max_length=50, choices=providers.choices)
    base_url = models.CharField(
        _("base URL"),
        blank=True,
        max_length=500,
        validators=[validate_address],
        help_text=_("Leave empty for the provider's usual address."),
    )
    codec = models.CharField(
        max_length=50,
        blank=True,
        help_text=_("Wire format; leave empty for the provider's usual one."),
    )
    enabled = models.BooleanField(default=True)
    allow_private_network = models.BooleanField(
        default=False,
        help_text=_("The address may be in a private network (Ollama, vLLM)."),
    )
    accepts_own_keys = models.BooleanField(
        _("people's own keys"),
        default=False,
        db_default=False,
        help_text=_(
            "People may store a key of their own, which their calls then use instead of"
            " the keys below."
        ),
    )
    keeps_exchanges = models.BooleanField(
        _("keep requests and responses"),
        default=False,
        db_default=False,
        help_text=_(
            "Store what is sent to this provider and what it answers, without keys, for"
            " staff with the permission to read them. They hold people's messages, and"
            " are erased after EXCHANGE_RETENTION_DAYS."
        ),
    )
    options = JSONField(  # `models` is a name in here, for the type checker
        default=dict,
        blank=True,
        validators=[validate_object],
        help_text=_(
            'Further options of this kind, for example {"headers": {"X-Team": "a"}}.'
            " Enter no secrets: everybody who can open this page can read them."
        ),
    )
    # As in the base, with defaults for the rows of processes of older releases.
    secret_names = JSONField(
        default=list, db_default=models.Value([], JSONField()), editable=False
    )
    secret_headers = EncryptedTextField(
        blank=True, default="", db_default="", editable=False
    )
    proxy_url = models.CharField(
        _("proxy"),
        max_length=500,
        blank=True,
        default="",
        db_default="",
        validators=[validate_address],
        help_text=_(
            "Requests go through this HTTP proxy, such as http://proxy.example:3128. It"
            " may be in a private network."
        ),
    )
    ca_certificates = models.TextField(
        _("CA certificates"),
        blank=True,
        default="",
        db_default="",
        validators=[validate_certificates],
        help_text=_(
            "PEM. Certificates of the address are accepted if these have signed them,"
            " and no others. Empty means the usual ones."
        ),
    )
    connect_timeout = _seconds(
        _("Seconds until a connection is made. Empty means the server's setting.")
    )
    first_byte_timeout = _seconds(
        _("Seconds until a streamed answer begins. Empty means the server's setting.")
    )
    idle_timeout = _seconds(
        _("Seconds between two pieces of an answer. Empty: the server's setting.")
    )
    total_timeout = _seconds(
        _("Seconds for a whole answer, at most the server's own limit.")
    )
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name

    def save(self, *args: Any, **kwargs: Any) -> None:
        if not self._state.adding:
            self._bind_older_keys()
        super().save(*args, **kwargs)

    def _bind_older_keys(self) -> None:
        """Bind keys of the older form `f1:` to the origin before this change.

        They are bound to no origin, so they would be sent to the new address.
        """
        before = Provider._base_manager.filter(pk=self.pk).first()
        if before and before.origin != self.origin:
            for key in self.keys.all():  # updates prefetched instances, too
                key.bind_older_to(before.origin)

    def clean_fields(self, exclude: Any = None) -> None:
        """Normalize the address and options before the fields are validated."""
        self.options = self.options or {}
        if self.host and self.base_url and isinstance(self.options, dict):
            self.base_url, self.options = self.host.tidy(self.base_url, self.options)
        super().clean_fields(exclude)

    def clean(self) -> None:
        problems: dict[str, str] = {}
        host = self.host
        if host and self.codec and self.codec not in host.codecs:
            problems["codec"] = _("%(label)s speaks %(codecs)s.") % {
                "label": host.label,
                "codecs": ", ".join(host.codecs),
            }
        if host and host.needs_base_url and not self.base_url:
            problems["base_url"] = _("%(label)s has no usual address; enter one.") % {
                "label": host.label
            }
        try:
            validate_headers(self.headers)
        except ValidationError as exc:
            problems["options"] = exc.messages[0]
        if host and not problems and isinstance(self.options, dict):
            problems = self._option_problems(host)
        if problems:
            raise ValidationError(problems)

    def _option_problems(self, host: Host) -> dict[str, str]:
        """Errors in the options, alone or in combination with the other fields."""
        if problem := host.problem(self.options):
            return {"options": problem}
        codec = host.codec(self.codec, self.options)
        endpoint = Endpoint(
            provider=host, codec=codec, base_url=self.base_url, options=self.options
        )
        try:
            host.connect(endpoint)
        except BadRequest as exc:
            return {"options": str(exc)}
        return {}

    @property
    def host(self) -> Host | None:
        """The provider definition of this kind; None if it does not exist any more."""
        return providers.all_providers().get(self.kind)

    @property
    def headers(self) -> Any:
        known = self.options if isinstance(self.options, dict) else {}
        return known.get("headers", {})

    @property
    def connection(self) -> Connection:
        return Connection(
            proxy_url=self.proxy_url,
            ca_certificates=self.ca_certificates,
            connect_timeout=self.connect_timeout,
            first_byte_timeout=self.first_byte_timeout,
            idle_timeout=self.idle_timeout,
            total_timeout=self.total_timeout,
        )

    @property
    def address(self) -> str:
        """The base URL of requests; "" if unknown."""
        if self.base_url or not self.host:
            return self.base_url
        address = self.host.base_url
        if self.is_own_server:
            return str(settings.SELF_URL) + address.removeprefix("self:")
        return address

    def secret_origin(self, column: str) -> str:
        return self.origin

    @property
    def origin(self) -> str:
        """The origins to which its keys are sent: its own, and the token issuer's."""
        if self.is_own_server and not self.base_url:
            return "self:"  # the port may change
        origins = [canonical_origin(self.address), canonical_origin(self._issuer())]
        return " ".join(filter(None, origins))

    def _issuer(self) -> str:
        """The address that exchanges its keys for tokens; "" if there is none."""
        if self.host is None:
            return ""
        try:
            codec = self.host.codec(self.codec, self.options)
            endpoint = Endpoint(
                provider=self.host,
                codec=codec,
                base_url=self.base_url,
                options=self.options,
            )
            credentials = self.host.connect(endpoint).credentials
        except (BadRequest, KeyError):  # then no request can be sent
            return ""
        return credentials.address if credentials else ""

    @property
    def secrets_not_sent(self) -> list[str]:
        """A sentence for each secret that is not sent."""
        keys = [f"{key}: {why}" for key in self.keys.all() if (why := key.why_not_sent)]
        return [*keys, *super().secrets_not_sent]

    @property
    def is_own_server(self) -> bool:
        """Whether this server itself answers (the demo provider)."""
        return self.host is not None and self.host.base_url.startswith("self:")

    @property
    def why_unusable(self) -> str:
        """The reason as part of a sentence; "" if the provider can be used."""
        if not self.enabled:
            return f"its provider {self.name!r} is switched off"
        if self.host is None:
            return f"its provider's kind {self.kind!r} is unknown"
        return self.why_disabled if is_disabled(self.kind) else ""

    @property
    def why_disabled(self) -> str:
        """Part of a sentence if the environment switches this kind off, else ""."""
        if not is_disabled(self.kind):
            return ""
        flag = self.kind.upper().replace("-", "_")
        return f"ENABLE_{flag}=false switches its provider off"


def is_disabled(kind: str) -> bool:
    """Whether the environment switches this kind off: `ENABLE_<KIND>=false`."""
    return kind.lower().replace("-", "_") in settings.DISABLED_PROVIDERS
