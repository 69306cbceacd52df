"""What a provider is: wire formats, an address and a way to show the key."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from llm.wire.codec import Codec
from llm.wire.items import Issuer
from llm.wire.request import Request


def bearer(api_key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {api_key}"} if api_key else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """A host. `codecs` by name, the default first; `auth` makes a key's headers."""

    name: str
    label: str
    base_url: str
    codecs: Mapping[str, Codec]
    auth: Callable[[str], dict[str, str]] = bearer
    headers: Mapping[str, str] = field(default_factory=dict)
    needs_key: bool = True
    needs_base_url: bool = False
    #: Environment variables of the first start: the key's, the model's, the address's.
    key_env: str = ""
    model_env: str = ""
    base_url_env: str = ""
    default_model: str = ""
    docs_url: str = ""

    def codec(self, name: str = "") -> Codec:
        """Raises KeyError for a wire format this host does not speak."""
        return self.codecs[name] if name else next(iter(self.codecs.values()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """A provider as one account uses it: what a call needs to know, and no row."""

    provider: Provider
    codec: Codec
    api_key: str = field(default="", repr=False)
    base_url: str = ""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    allow_private_network: bool = False
    route: str = ""  # "<provider row>:<key row>"

    def url(self, request: Request) -> str:
        base = self.base_url or self.provider.base_url
        return base.rstrip("/") + self.codec.path(request)

    def issuer(self, model: str) -> Issuer:
        return {"provider": self.provider.name, "model": model, "route": self.route}


@dataclass(frozen=True, slots=True, kw_only=True)
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
