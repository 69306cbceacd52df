"""Definition of a provider: wire formats, address and authentication."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from llm.capabilities import UNKNOWN, Capabilities
from llm.keys.audience import EVERYBODY, KeyAudience, KeySource
from llm.wire.codec import Codec
from llm.wire.codecs.openai_chat.codec import OpenAIChatCodec
from llm.wire.codecs.openai_chat.quirks import apply_quirks, quirk_problem
from llm.wire.items import ANY_KEY, Issuer
from llm.wire.request import BackgroundResponse


def bearer(api_key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {api_key}"} if api_key else {}


def credentials_of(headers: Mapping[str, str]) -> Iterator[str]:
    """The values of secret headers, and what follows the scheme of an authorization,
    which a host may quote alone."""
    for name, value in headers.items():
        yield value
        scheme, _, credentials = value.strip().partition(" ")
        if name.lower().endswith("authorization") and scheme:
            yield credentials.strip()


def _with_quirks(codec: OpenAIChatCodec, quirks: Mapping[str, bool]) -> Codec:
    """Equal switches give the same object, by which encoded items are cached."""
    key = (id(codec), tuple(sorted(quirks.items())))
    found = _adjusted.get(key)
    if found is None or found[0] is not codec:
        if len(_adjusted) >= _MAX_ADJUSTED:
            _adjusted.clear()
        found = _adjusted[key] = (codec, apply_quirks(codec, quirks))
    return found[1]


_MAX_ADJUSTED = 1_000
_adjusted: dict[tuple[int, Any], tuple[OpenAIChatCodec, Codec]] = {}


#: Posts a form to a URL; returns status and body. Raises LLMError.
Post = Callable[[str, Mapping[str, str]], Awaitable[tuple[int, bytes]]]


class Credentials(Protocol):
    """For hosts that accept tokens issued for a key, not the key itself."""

    @property
    def address(self) -> str:
        """The address that the key is sent to, if the provider's row sets it; "" if the
        key contains it."""
        ...

    async def token(self, post: Post) -> str:
        """A valid token. Raises LLMError."""
        ...

    def forget(self, token: str) -> None:
        """Drop a token that the host refused."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """A field of a provider row's `options` that its host supports."""

    name: str
    wanted: str  # completes "must be …"
    pattern: str = r"[\x21-\x7e]+"
    env: str = ""  # environment variable that sets it at the first start

    def fits(self, value: Any) -> bool:
        return isinstance(value, str) and bool(re.fullmatch(self.pattern, value))


Options = Mapping[str, Any]


def _keep_endpoint(endpoint: Endpoint) -> Endpoint:
    return endpoint


def _keep_address(base_url: str, options: Options) -> tuple[str, dict[str, Any]]:
    return base_url, dict(options)


@dataclass(frozen=True, slots=True)
class KeySignIn:
    """OAuth with PKCE that ends with an API key (`llm.keys.key_sign_in`)."""

    authorize_url: str
    exchange_path: str  # below the provider's base URL


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """A host. `codecs` by name, the default first; `auth` makes the headers for a key.

    For accounts that need more than address and key: `options` lists the fields of the
    row, `tidy` normalises the address as users paste it (and those options),
    `usual_codec` names the default wire format, and `connect` completes the endpoint.
    `connect` raises BadRequest for options that contradict each other, with `param`
    naming one. It gets its own result again, with another key, if a call brings a key.
    """

    name: str
    label: str
    base_url: str
    #: The base URL of requests with a prefill, if it differs.
    prefill_base_url: str = ""
    codecs: Mapping[str, Codec]
    auth: Callable[[str], dict[str, str]] = bearer
    headers: Mapping[str, str] = field(default_factory=dict)
    needs_key: bool = True
    needs_base_url: bool = False
    options: Sequence[Option] = ()
    tidy: Callable[[str, Options], tuple[str, dict[str, Any]]] = _keep_address
    usual_codec: Callable[[Options], str] | None = None
    connect: Callable[[Endpoint], Endpoint] = _keep_endpoint
    #: Environment variables of the first start: of the key, the model and the address.
    key_env: str = ""
    model_env: str = ""
    base_url_env: str = ""
    #: Instead of the key, a secret that tokens are issued for, and the options it
    #: needs.
    secret_env: str = ""
    secret_options: Sequence[str] = ()
    default_model: str = ""
    key_sign_in: KeySignIn | None = None  # where people can get a key by signing in
    docs_url: str = ""
    #: The path of the list of models; "" if there is none, or it lists other things.
    models_path: str = "/models"
    #: Whether the host counts the tokens of a prompt, for nothing (`CountingCodec`).
    counts_tokens: bool = False

    def codec(self, name: str = "", options: Options | None = None) -> Codec:
        """Raises KeyError for a wire format that this host does not support."""
        if not name and self.usual_codec:
            name = self.usual_codec(options or {})
        codec = self.codecs[name] if name else next(iter(self.codecs.values()))
        quirks = (options or {}).get("quirks")
        if quirks and isinstance(codec, OpenAIChatCodec) and not quirk_problem(quirks):
            return _with_quirks(codec, quirks)
        return codec

    def problem(self, options: Options) -> str:
        """Validation error of the options of a row, one by one; "" for none."""
        known = {option.name: option for option in self.options}
        for name, value in options.items():
            if name == "headers":
                continue  # valid for every host
            if name == "quirks" and self.has_quirks:
                if problem := quirk_problem(value):
                    return problem
                continue
            if name not in known:
                names = ", ".join(["headers", *known])
                return f"{self.label} has no option {name!r}; use {names}."
            if not known[name].fits(value):
                return f"{name!r} must be {known[name].wanted}."
        return ""

    @property
    def has_quirks(self) -> bool:
        """Whether a row may set switches of Chat Completions."""
        return any(isinstance(each, OpenAIChatCodec) for each in self.codecs.values())

    def variables(self) -> Iterator[str]:
        """The names of its environment variables."""
        named = [self.key_env, self.secret_env, self.model_env, self.base_url_env]
        yield from filter(None, [*named, *(option.env for option in self.options)])


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """How requests of an account reach its host. Seconds; None for the setting."""

    proxy_url: str = ""
    ca_certificates: str = ""  # PEM; "" for the usual ones
    connect_timeout: float | None = None
    first_byte_timeout: float | None = None
    idle_timeout: float | None = None
    total_timeout: float | None = None


DIRECT = Connection()


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """A provider with one account's settings: all that a call needs, without rows."""

    provider: Provider
    codec: Codec
    api_key: str = field(default="", repr=False)
    base_url: str = ""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    #: Further headers, sent like the key and never shown.
    secret_headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    options: Options = field(default_factory=dict)  # of the row
    query: Mapping[str, str] = field(default_factory=dict)  # added to every URL
    #: Used instead of the key, which is sent to the token issuer, not to the host.
    credentials: Credentials | None = None
    allow_private_network: bool = False
    keeps_exchanges: bool = False  # requests and responses are stored for staff
    connection: Connection = DIRECT
    route: str = ""  # "<provider row>:<key row>"
    #: The headers that authenticate with the key; unused if there are `credentials`.
    auth_headers: Mapping[str, str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # The same for all requests.
        auth_headers = self.provider.auth(self.api_key)
        object.__setattr__(self, "auth_headers", auth_headers)

    @property
    def secrets(self) -> list[str]:
        """The texts to mask in what the host sends."""
        return [self.api_key, *credentials_of(self.secret_headers)]

    @property
    def takes_prefill(self) -> bool:
        """False for an address set by staff if the host has another one for prefills:
        it is unknown whether the address supports them."""
        provider, base_url = self.provider, self.base_url.rstrip("/")
        return not provider.prefill_base_url or base_url in ("", provider.base_url)

    def issuer(self, model: str, *, any_key: bool = False) -> Issuer:
        """The issuer of proofs, which are valid for one wire format only.

        `any_key`: the proof came by an unknown one of the account's keys.
        """
        usual = next(iter(self.provider.codecs.values())).name
        route = self.route
        if any_key:
            route = f"{route.partition(':')[0]}:{ANY_KEY}"
        if self.codec.name != usual:
            route = f"{route}:{self.codec.name}"
        return {"provider": self.provider.name, "model": model, "route": route}


@dataclass(frozen=True, slots=True, kw_only=True, weakref_slot=True)
class Route:
    """A resolved model: its endpoint, its name at the provider, and its settings."""

    endpoint: Endpoint
    model: str  # the provider's spelling
    name: str  # the public name
    model_id: int | None = None  # row of LanguageModel
    provider_id: int | None = None
    key_id: int | None = None
    key_audience: KeyAudience = EVERYBODY  # of the key's pool
    provider_name: str = ""  # the row's name
    prices: Mapping[str, Any] = field(default_factory=dict)  # set in the row
    #: Prices with the time from which they count, oldest first.
    price_schedule: Sequence[Mapping[str, Any]] = ()
    capabilities: Capabilities = UNKNOWN
    context_window: int | None = None  # tokens
    max_output_tokens: int | None = None
    defaults: Mapping[str, Any] = field(default_factory=dict)  # default options
    replaces: str = ""  # public name of a retired model, for which it answers
    #: Hosted tools to add if this route is a fallback; those of the first route are in
    #: the request.
    hosted_tools: Sequence[dict[str, Any]] = ()
    #: The issuer of the proofs in its answers.
    issuer: Issuer = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "issuer", self.endpoint.issuer(self.model))

    @property
    def key_source(self) -> KeySource:
        """Whose key is sent; "" for none."""
        if self.key_id is not None:
            return self.key_audience.source
        return "call" if self.endpoint.api_key else ""

    def takes_prefill(self, effort: str | None) -> bool:
        """Whether the model continues a text that a request ends with as the start of
        its answer."""
        can = self.capabilities
        if can.prefill is not True or can.reasons(effort):
            return False
        return self.endpoint.takes_prefill

    def owns_response(self, response: BackgroundResponse) -> bool:
        """Whether this model and account made the response, with any key."""
        own, issuer = self.issuer, response.issuer
        if (own["provider"], own["model"]) != (issuer["provider"], issuer["model"]):
            return False
        return _without_key(own["route"]) == _without_key(issuer["route"])


def _without_key(route: str) -> tuple[str, str]:
    account, _, key_and_codec = route.partition(":")
    return account, key_and_codec.partition(":")[2]
