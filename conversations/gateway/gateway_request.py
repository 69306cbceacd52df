"""A client's parsed request: its model, what the model is sent, and the options."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from conversations.engine.metering import Meter
from conversations.gateway.dialects import Dialect
from conversations.gateway.model_resolution import ModelChain
from conversations.models import AccessToken
from conversations.turns.all_except import AllExcept
from llm.adaptation.request_repairs import REFUSED_PROOFS
from llm.cache.cache_seconds import are_valid_seconds
from llm.cache.cached_stream import CacheScope, describe_leniency
from llm.errors import BadRequest
from llm.options import fit
from llm.pricing.answering_model import choices_of
from llm.pricing.caller import Caller, cut_name, join_tags
from llm.provider import Route
from llm.telemetry import tracing
from llm.wire.facades.common_shape import MAX_CACHE_SECONDS
from llm.wire.facades.field_checks import whole
from llm.wire.facades.losses import find_losses, has_seals, short_names
from llm.wire.request import Request, single_tools
from tools.loop.steps import is_allowed, is_limited
from tools.runtime_tool import RuntimeTool

#: Options that clients send to every model alike (Anthropic's API even requires
#: `max_tokens`). They are dropped if the model does not support them.
_DROPPABLE_OPTIONS = (
    "frequency_penalty",
    "max_output_tokens",
    "presence_penalty",
    "reasoning",
    "seed",
    "temperature",
    "top_p",
)
TAGS_HEADER = b"x-parley-tags"
_NONE: frozenset[str] = frozenset()  # shared: an empty one takes 216 bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ParleyOptions:
    """Options of this server, which a caller sets in the field `parley`."""

    receipts: bool = False  # show calls of the server's tools and their outputs
    buffer_tool_calls: bool = False
    ignore_invalid_options: bool = False
    explain: bool = False  # add what became of the request to the answer
    cache_seconds: int | None = None  # None: as the token or the model has it
    tags: Sequence[str] = ()  # of the request's model calls

    @property
    def changes_answers(self) -> bool:
        """True if an answer has to be read and written anew."""
        return self.receipts or self.buffer_tool_calls or self.explain

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> ParleyOptions:
        """Raises BadRequest."""
        section = body.get("parley") or {}
        if not isinstance(section, Mapping):
            raise BadRequest("'parley' must be an object.", param="parley")
        known = {f"parley.{option.name}" for option in fields(cls)}
        for name in body:
            if name.startswith("parley.") and name not in known:
                raise BadRequest(f"{name[:64]!r} is not known.", param=name[:64])
        values: dict[str, Any] = {}
        for option in fields(cls):
            value = section.get(option.name, body.get(f"parley.{option.name}"))
            if value is not None:
                value = whole(value)
                _check_option(option.name, value)
                values[option.name] = value
        return cls(**values)


NO_OPTIONS = ParleyOptions()


def _check_option(name: str, value: Any) -> None:
    """Raises BadRequest."""
    where = f"parley.{name}"
    if name == "cache_seconds":
        if not are_valid_seconds(value):
            raise BadRequest(
                f"{where!r} must be a whole number from 0 to {MAX_CACHE_SECONDS}.",
                param=where,
            )
    elif name == "tags":
        read_tags(value, where)
    elif not isinstance(value, bool):
        raise BadRequest(f"{where!r} must be true or false.", param=where)


def tags_of(options: ParleyOptions, headers: Mapping[bytes, bytes]) -> str:
    """The tags of the body, or else of the header. Raises BadRequest."""
    if options.tags:
        return read_tags(list(options.tags), "parley.tags")
    named = headers.get(TAGS_HEADER, b"").decode("latin-1").split(",")
    return read_tags([name.strip() for name in named], None)


def read_tags(tags: Any, param: str | None) -> str:
    """Raises BadRequest."""
    try:
        return join_tags(tags if isinstance(tags, list) else [tags])
    except (TypeError, ValueError) as exc:
        raise BadRequest(f"The tags cannot be used: {exc}.", param=param) from exc


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayRequest:
    """A request that was parsed, and checked against its token's limits."""

    dialect: Dialect
    token: AccessToken
    body: Mapping[str, Any]  # without the options in `parley`
    parley_options: ParleyOptions
    chain: ModelChain
    route: Route  # the first of the chain
    host_speaks_dialect: bool  # the model's host speaks the client's own API
    request: Request
    #: Whether a host of the client's API gets the fields that Parley does not know.
    keeps_fields: bool = True
    own_tools: Mapping[str, RuntimeTool] = field(default_factory=dict)
    #: Models that the hosts of the chain may call instead (`models`), if they have
    #: rows. None: they may not choose.
    alternatives: Sequence[Route] | None = None
    meter: Meter | None = None  # counts what the request costs the token
    limits: Mapping[str, str] = field(default_factory=dict)  # rate limit headers
    lost_options: Sequence[str] = ()  # those that the host's API does not have
    skipped_tools: Sequence[str] = ()  # those that the model does not support
    request_id: str = ""  # given by Parley
    client_request_id: str = ""
    tags: str = ""
    #: What `find_losses` found in the body, as the only element; empty until it has
    #: run.
    _found_losses: list[list[str]] = field(
        default_factory=list, init=False, repr=False, compare=False
    )

    def choices(self, route: Route) -> Sequence[Route]:
        """The models from which the client lets the host of `route` choose; () if it
        does not."""
        if self.alternatives is None:
            return ()
        return choices_of(route, self.alternatives)

    @property
    def caller(self) -> Caller:
        """Who makes the request's model calls."""
        return Caller(
            user_id=self.token.user_id,
            token_id=self.token.pk,
            token_label=self.token.label,
            end_user=cut_name(self._end_user),
            tags=self.tags,
            request_id=self.request_id,
            client_request_id=cut_name(self.client_request_id),
        )

    @property
    def _end_user(self) -> Any:
        """Whom the body names: a forwarded one is not parsed into `request`."""
        body = self.body
        if self.dialect.name == "messages":
            metadata = body.get("metadata")
            return metadata.get("user_id") if isinstance(metadata, Mapping) else None
        return body.get("safety_identifier") or body.get("user")

    def said_of_caller(self) -> dict[str, str]:
        """What of `caller` the request said itself, as its turn keeps it."""
        caller = self.caller
        said = {
            "end_user": caller.end_user,
            "tags": caller.tags,
            "request_id": caller.request_id,
            "client_request_id": caller.client_request_id,
        }
        if tracing.spans is not None:
            said["trace_parent"] = tracing.spans.current_traceparent()
        return said

    def headers(self, degraded: Collection[str] | None = None) -> dict[str, str]:
        """The answer's extra headers: rate limits, and what was dropped of the request.

        `degraded` is what differs from the request; None before that is known.
        """
        headers = {**self.limits}
        if self.route.replaces:
            both = f"{self.route.replaces} -> {self.route.name}"
            headers["x-parley-model-replaced"] = _ascii(both)
        if degraded is None:
            return headers
        if names := ", ".join(self.dropped_names(degraded)):
            headers["x-parley-degraded"] = names.replace("→", "->")
        return headers

    def dropped_names(self, degraded: Iterable[str]) -> list[str]:
        """What was dropped or changed: tools, fields that the host's API does not have,
        and the options in `degraded`. For a client of the host's own API they are
        only those that it lets the server drop, and proofs."""
        droppable = self.droppable
        options = [
            each
            for each in degraded
            if not self.host_speaks_dialect
            or _option_of(each) in droppable
            or each.startswith(REFUSED_PROOFS)
        ]
        lost: Sequence[str] = self.lost_options
        if not (self.host_speaks_dialect and self.keeps_fields):
            if not self._found_losses:  # a long body takes milliseconds
                self._found_losses.append(find_losses(self.dialect.name, self.body))
            (found,) = self._found_losses
            if self.host_speaks_dialect:
                found = [name for name in found if self._is_lost_to_its_api(name)]
            lost = short_names(list(dict.fromkeys([*lost, *found])))
        elif self.request.forwarded and has_seals(self.dialect.name, self.body):
            lost = [*lost, self.dialect.proof_field]
        return list(dict.fromkeys([*self.skipped_tools, *lost, *options]))

    def _is_lost_to_its_api(self, name: str) -> bool:
        """Whether a host of the client's own API would not get the field either. A
        request that is written anew for such a host has proofs, tools and unknown
        options."""
        is_inside = name.startswith(("cache_control", "messages."))
        return is_inside and name != self.dialect.proof_field

    @property
    def cache_seconds(self) -> int:
        """How long answers are cached, as the request, its token or the model has it.

        A response that continues a stored one depends on more than its request.
        """
        body, named = self.body, self.parley_options.cache_seconds
        if body.get("previous_response_id") or body.get("conversation"):
            return 0
        if named is None:
            named = self.token.cache_seconds
        return self.chain.cache_seconds if named is None else named

    @property
    def cache_scope(self) -> CacheScope:
        """The client knows what its own functions do, so their calls come from the
        cache only if the request itself asks for it."""
        asked = self.parley_options.cache_seconds is not None
        safe = [t.name for t in self.own_tools.values() if t.replay == "safe"]
        unsafe = [name for name in self.own_tools if name not in safe]
        return CacheScope(
            owner_id=self.token.user_id,
            seconds=self.cache_seconds,
            leniency=describe_leniency(
                self.parley_options.ignore_invalid_options, self.droppable
            ),
            safe_functions=AllExcept(unsafe) if asked else safe,
        )

    @property
    def droppable(self) -> Collection[str]:
        """Options that are dropped if the model does not support them.

        Clients of another API than the host's send such options by habit. A client of
        the host's own API gets the host's error instead.
        """
        return () if self.host_speaks_dialect else _DROPPABLE_OPTIONS

    @property
    def max_tool_calls(self) -> int | None:
        """The limit on server tool calls; only Responses has a field for it."""
        limit = None
        if self.dialect.is_open_responses:
            limit = whole(self.body.get("max_tool_calls"))
        if (use := self.chain.preset) and (bound := use.preset.max_tool_calls):
            limit = bound if limit is None else min(bound, limit)
        return limit

    @property
    def filters_stop_sequences(self) -> bool:
        """True if this server must search the text for the stop sequences.

        It must if the model does not support them, or if the client's API reports which
        one ended the answer.
        """
        if not self.request.stop:
            return False
        is_supported = self.route.capabilities.stop is not False
        return self.dialect.reports_stop_sequence or not is_supported

    @property
    def client_tools(self) -> frozenset[str]:
        """Names of the functions that the client runs."""
        choice = self.request.tool_choice
        tools = single_tools(self.request.tools)
        named = {str(tool.get("name")) for tool in tools}
        client_names = named - self.own_tools.keys()
        return frozenset(name for name in client_names if is_allowed(name, choice))

    @property
    def server_tools(self) -> Collection[str]:
        """Names of the functions that this server runs."""
        if is_limited(self.request.tool_choice):
            return AllExcept(self.client_tools)
        return self.own_tools

    @property
    def hides_calls(self) -> bool:
        """Whether this server's tools are offered, whose calls clients do not see."""
        return bool(self.own_tools)

    @property
    def custom_tools(self) -> frozenset[str]:
        """Names of the tools that take free text instead of JSON arguments."""
        custom = [tool for tool in self.request.tools if tool["type"] == "custom"]
        return frozenset(str(tool.get("name")) for tool in custom) if custom else _NONE


def speaks_dialect(dialect: Dialect, route: Route) -> bool:
    """True if the model's host speaks the client's own API."""
    return route.endpoint.codec.name.startswith(dialect.codec_prefix)


def _ascii(text: str) -> str:
    """As headers need it."""
    return text.encode("ascii", "backslashreplace").decode()


def _option_of(degraded: str) -> str:
    """The option of an entry such as "reasoning.effort (max → high)"."""
    return degraded.partition(" ")[0].partition(".")[0]


def find_dropped_options(gateway_request: GatewayRequest) -> Sequence[str]:
    """The options that the engine will drop when it runs this request."""
    request, route = gateway_request.request, gateway_request.route
    fitted = fit(
        replace(request, items=(), tools=(), tool_choice=None, text=None),
        route.capabilities,
        model_name=route.name,
        ignore_invalid=True,
    )
    return fitted.dropped
