"""Definition of a provider: wire formats, address and authentication."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol
from urllib.parse import urlencode

from llm.wire.codec import Codec
from llm.wire.items import ANY_KEY, Issuer
from llm.wire.request import BackgroundResponse, Request


def bearer(api_key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {api_key}"} if api_key else {}


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """A host. `codecs` by name, the default first; `auth` makes the headers for a key.

    For accounts that need more than address and key: `options` lists the fields of the
    row, `tidy` normalises the address as users paste it (and those options),
    `usual_codec` names the default wire format, and `connect` completes the endpoint.
    `connect` raises BadRequest for options that contradict each other, with `param`
    naming one.
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
    docs_url: str = ""
    #: The path of the list of models; "" if there is none, or it lists other things.
    models_path: str = "/models"

    def codec(self, name: str = "", options: Options | None = None) -> Codec:
        """Raises KeyError for a wire format that this host does not support."""
        if not name and self.usual_codec:
            name = self.usual_codec(options or {})
        return self.codecs[name] if name else next(iter(self.codecs.values()))

    def problem(self, options: Options) -> str:
        """Validation error of the options of a row, one by one; "" for none."""
        known = {option.name: option for option in self.options}
        for name, value in options.items():
            if name == "headers":
                continue  # valid for every host
            if name not in known:
                names = ", ".join(["headers", *known])
                return f"{self.label} has no {name!r}; there are {names}."
            if not known[name].fits(value):
                return f"{name!r} must be {known[name].wanted}."
        return ""

    def variables(self) -> Iterator[str]:
        """The names of its environment variables."""
        named = [self.key_env, self.secret_env, self.model_env, self.base_url_env]
        yield from filter(None, [*named, *(option.env for option in self.options)])


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """A provider with one account's settings: all that a call needs, without rows."""

    provider: Provider
    codec: Codec
    api_key: str = field(default="", repr=False)
    base_url: str = ""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    options: Options = field(default_factory=dict)  # of the row
    query: Mapping[str, str] = field(default_factory=dict)  # added to every URL
    #: Used instead of the key, which is sent to the token issuer, not to the host.
    credentials: Credentials | None = None
    allow_private_network: bool = False
    route: str = ""  # "<provider row>:<key row>"

    def url_of(self, path: str) -> str:
        """The URL of `path`, which may include a query, below the base URL."""
        url = (self.base_url or self.provider.base_url).rstrip("/") + path
        if not self.query:
            return url
        return f"{url}{'&' if '?' in url else '?'}{urlencode(self.query)}"

    def url(self, request: Request) -> str:
        path = self.codec.path(request)
        if request.prefill and self.provider.prefill_base_url:
            elsewhere = replace(self, base_url=self.provider.prefill_base_url)
            return elsewhere.url_of(path)
        return self.url_of(path)

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
    provider_name: str = ""  # the row's name
    prices: Mapping[str, Any] = field(default_factory=dict)  # set in the row
    capabilities: Mapping[str, Any] = field(default_factory=dict)
    context_window: int | None = None  # tokens
    max_output_tokens: int | None = None
    defaults: Mapping[str, Any] = field(default_factory=dict)  # default options
    #: Hosted tools to add if this route is a fallback; those of the first route are in
    #: the request.
    hosted_tools: Sequence[dict[str, Any]] = ()

    def owns_response(self, response: BackgroundResponse) -> bool:
        """Whether this model and account made the response, with any key."""
        own, issuer = self.endpoint.issuer(self.model), response.issuer
        if (own["provider"], own["model"]) != (issuer["provider"], issuer["model"]):
            return False
        return _without_key(own["route"]) == _without_key(issuer["route"])


def _without_key(route: str) -> tuple[str, str]:
    account, _, key_and_codec = route.partition(":")
    return account, key_and_codec.partition(":")[2]
