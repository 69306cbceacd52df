"""What a provider is: wire formats, an address and a way to show the key."""

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


#: Posts a form to a URL: the answer's status and body. Raises LLMError.
Post = Callable[[str, Mapping[str, str]], Awaitable[tuple[int, bytes]]]


class Credentials(Protocol):
    """For hosts that take no key, but tokens which somebody issues for it."""

    @property
    def address(self) -> str:
        """Where the provider's row says that the key is sent to; "" where the key says
        it itself."""
        ...

    async def token(self, post: Post) -> str:
        """One that is good now. Raises LLMError."""
        ...

    def forget(self, token: str) -> None:
        """The host has refused this one."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """A field of a provider row's `options` that its host understands."""

    name: str
    wanted: str  # completes "must be …"
    pattern: str = r"[\x21-\x7e]+"
    env: str = ""  # the variable of the first start that sets it

    def fits(self, value: Any) -> bool:
        return isinstance(value, str) and bool(re.fullmatch(self.pattern, value))


Options = Mapping[str, Any]


def _as_it_is(endpoint: Endpoint) -> Endpoint:
    return endpoint


def _as_they_are(base_url: str, options: Options) -> tuple[str, dict[str, Any]]:
    return base_url, dict(options)


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """A host. `codecs` by name, the default first; `auth` makes a key's headers.

    Where an account is more than address and key, `options` names what else its row may
    hold, `tidy` turns an address as people copy it (and those options) into what is
    stored, `usual_codec` names the wire format where nobody chose one, and `connect`
    makes the endpoint of them. It raises BadRequest for options that do not go
    together, with `param` naming one.
    """

    name: str
    label: str
    base_url: str
    #: Where requests with a prefill go, if that is elsewhere.
    prefill_base_url: str = ""
    codecs: Mapping[str, Codec]
    auth: Callable[[str], dict[str, str]] = bearer
    headers: Mapping[str, str] = field(default_factory=dict)
    needs_key: bool = True
    needs_base_url: bool = False
    options: Sequence[Option] = ()
    tidy: Callable[[str, Options], tuple[str, dict[str, Any]]] = _as_they_are
    usual_codec: Callable[[Options], str] | None = None
    connect: Callable[[Endpoint], Endpoint] = _as_it_is
    #: Environment variables of the first start: the key's, the model's, the address's.
    key_env: str = ""
    model_env: str = ""
    base_url_env: str = ""
    #: Instead of the key, a secret to get tokens for, and the options that it takes.
    secret_env: str = ""
    secret_options: Sequence[str] = ()
    default_model: str = ""
    docs_url: str = ""
    #: Where it lists its models; "" where it has no list, or one of other things.
    models_path: str = "/models"

    def codec(self, name: str = "", options: Options | None = None) -> Codec:
        """Raises KeyError for a wire format this host does not speak."""
        if not name and self.usual_codec:
            name = self.usual_codec(options or {})
        return self.codecs[name] if name else next(iter(self.codecs.values()))

    def problem(self, options: Options) -> str:
        """What is wrong with a row's options, each by itself; "" for nothing."""
        known = {option.name: option for option in self.options}
        for name, value in options.items():
            if name == "headers":
                continue  # every host's
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
    """A provider as one account uses it: what a call needs to know, and no row."""

    provider: Provider
    codec: Codec
    api_key: str = field(default="", repr=False)
    base_url: str = ""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    options: Options = field(default_factory=dict)  # the row's
    query: Mapping[str, str] = field(default_factory=dict)  # of every URL
    #: In place of the key, which then goes to whoever issues tokens, and not the host.
    credentials: Credentials | None = None
    allow_private_network: bool = False
    route: str = ""  # "<provider row>:<key row>"

    def at(self, path: str) -> str:
        """The URL of `path`, which may hold a query, below the base URL."""
        url = (self.base_url or self.provider.base_url).rstrip("/") + path
        if not self.query:
            return url
        return f"{url}{'&' if '?' in url else '?'}{urlencode(self.query)}"

    def url(self, request: Request) -> str:
        path = self.codec.path(request)
        if request.prefill and self.provider.prefill_base_url:
            elsewhere = replace(self, base_url=self.provider.prefill_base_url)
            return elsewhere.at(path)
        return self.at(path)

    @property
    def takes_prefill(self) -> bool:
        """False behind an address of the staff's own, where the host has another one
        for prefills: nobody knows whether it leads there."""
        provider, base_url = self.provider, self.base_url.rstrip("/")
        return not provider.prefill_base_url or base_url in ("", provider.base_url)

    def issuer(self, model: str, *, any_key: bool = False) -> Issuer:
        """A proof said in one wire format means nothing in another.

        `any_key`: of a proof that came by one of the account's keys, and nobody knows
        by which."""
        usual = next(iter(self.provider.codecs.values())).name
        route = self.route
        if any_key:
            route = f"{route.partition(':')[0]}:{ANY_KEY}"
        if self.codec.name != usual:
            route = f"{route}:{self.codec.name}"
        return {"provider": self.provider.name, "model": model, "route": route}


@dataclass(frozen=True, slots=True, kw_only=True, weakref_slot=True)
class Route:
    """Where a model's name leads: the model as its provider spells it, and how to
    ask."""

    endpoint: Endpoint
    model: str  # the provider's spelling
    name: str  # ours, as people see it
    model_id: int | None = None  # row of LanguageModel
    provider_id: int | None = None
    key_id: int | None = None
    provider_name: str = ""  # the row's, as staff know it
    prices: Mapping[str, Any] = field(default_factory=dict)  # the row's own
    capabilities: Mapping[str, Any] = field(default_factory=dict)
    context_window: int | None = None  # tokens
    max_output_tokens: int | None = None
    defaults: Mapping[str, Any] = field(
        default_factory=dict
    )  # options of every request
    #: Tools of its provider's own that it is given where it is fallen back on; the
    #: first model's stand in the request.
    hosted_tools: Sequence[dict[str, Any]] = ()

    def has_made(self, response: BackgroundResponse) -> bool:
        """Whether it is of this model and account, by whichever key it was made."""
        own, made_by = self.endpoint.issuer(self.model), response.issuer
        if (own["provider"], own["model"]) != (made_by["provider"], made_by["model"]):
            return False
        return _without_key(own["route"]) == _without_key(made_by["route"])


def _without_key(route: str) -> tuple[str, str]:
    account, _, key_and_codec = route.partition(":")
    return account, key_and_codec.partition(":")[2]
