"""Azure OpenAI: the v1 API and the dated versions before it.

A model's name is the name of its deployment, unless the option `deployment` is set.
Requests go to `https://RESOURCE.openai.azure.com/openai/v1`. If `api_version` is a
date, they go to the older URLs, which have the deployment in the path:
`…/openai/deployments/DEPLOYMENT/chat/completions?api-version=DATE`.

Authentication is by API key. With `tenant` and `client_id` set, the key is a client
secret, for which Entra ID issues a token.

Source: https://learn.microsoft.com/azure/ai-foundry/openai/api-version-lifecycle
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

from llm.errors import BadRequest
from llm.keys.token_credentials import AZURE_SCOPE, ENTRA, EntraCredentials
from llm.provider import Credentials, Endpoint, Option, Options, Provider
from llm.wire.codec import Codec
from llm.wire.codecs.openai_chat import host_options as openai_chat
from llm.wire.codecs.openai_chat.codec import OpenAIChatCodec
from llm.wire.codecs.openai_responses import codec as openai_responses
from llm.wire.codecs.openai_responses.codec import OpenAIResponsesCodec

_DATE = r"\d{4}-\d{2}-\d{2}(-preview)?"
_DEPLOYMENT = r"[\w.-]+"
_OPENAI = re.compile(r"(.*?)(/openai)(/(?:v1|deployments|responses|chat)\b.*)?$")
#: The path of a Foundry project, which is dropped: models belong to the resource.
_PROJECT = re.compile(r"/api/projects/[^/]+/?$")
_CLIENT = ("tenant", "client_id")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Address:
    """The parts of an address in any form that Azure's portal or SDKs use."""

    base: str  # the URL before "/v1" or "/deployments"
    deployment: str = ""
    api_version: str = ""

    @classmethod
    def parse(cls, text: str) -> _Address:
        """Raises ValueError."""
        url = urlsplit(text if "://" in text else f"https://{text}")
        front, openai, rest = _at_openai(url.path)
        deployment = re.match(r"/deployments/([^/]+)", rest)
        return cls(
            base=f"{url.scheme}://{url.netloc}{front}{openai}",
            deployment=unquote(deployment[1]) if deployment else "",
            api_version=parse_qs(url.query).get("api-version", [""])[0],
        )


def _at_openai(path: str) -> tuple[str, str, str]:
    """A path split at its "/openai", which is added to an address without a path."""
    path = path.rstrip("/")
    if found := _OPENAI.match(path):
        front, openai, rest = found.groups()
        return _PROJECT.sub("", front), openai, rest or ""
    if path.endswith("/v1"):
        return path.removesuffix("/v1"), "", ""  # a proxy with its own path
    return _PROJECT.sub("", path), "/openai", ""


def _tidy(base_url: str, options: Options) -> tuple[str, dict[str, Any]]:
    """Split an address into its base URL and the options in its path and query."""
    try:
        address = _Address.parse(base_url)
    except ValueError:
        return base_url, dict(options)  # the form's field reports the error
    from_address = {
        "deployment": address.deployment,
        "api_version": address.api_version,
    }
    known = {name: value for name, value in from_address.items() if value}
    merged = {**known, **options}
    return address.base + ("" if _is_dated(merged) else "/v1"), merged


def _is_dated(options: Options) -> bool:
    return bool(re.fullmatch(_DATE, str(options.get("api_version", ""))))


def _usual_codec(options: Options) -> str:
    """All dated versions have Chat Completions; few have Responses."""
    return "openai_chat" if _is_dated(options) else "openai_responses"


def _connect(endpoint: Endpoint) -> Endpoint:
    base_url, options = _tidy(endpoint.base_url, endpoint.options)
    version = str(options.get("api_version", ""))
    is_plain = version in ("", "v1")
    return replace(
        endpoint,
        base_url=base_url,
        options=options,
        codec=_codec(endpoint.codec, options),
        query={} if is_plain else {"api-version": version},
        credentials=_credentials(endpoint.api_key, options),
    )


def _codec(codec: Codec, options: Options) -> Codec:
    deployment = str(options.get("deployment", ""))
    match codec:
        case OpenAIChatCodec() if _is_dated(options):
            name = quote(deployment, safe="") or "{model}"
            return replace(
                codec,
                path_template=f"/deployments/{name}/chat/completions",
                drops=codec.drops | {"model"},
                system_role="system",  # most dated versions lack "developer"
            )
        case OpenAIChatCodec() | OpenAIResponsesCodec():
            return replace(codec, deployment=deployment)
    return codec


def _credentials(secret: str, options: Mapping[str, Any]) -> Credentials | None:
    present = {name: str(options[name]) for name in _CLIENT if options.get(name)}
    if not present:
        return None
    if missing := [name for name in _CLIENT if name not in present]:
        raise BadRequest(
            f"{' and '.join(present)} must come with {' and '.join(missing)}.",
            param=missing[0],
        )
    return EntraCredentials(
        **present,
        secret=secret,
        authority=str(options.get("authority") or ENTRA),
        scope=str(options.get("scope") or AZURE_SCOPE),
    )


def _api_key(api_key: str) -> dict[str, str]:
    return {"api-key": api_key}


PROVIDER = Provider(
    name="azure_openai",
    label="Azure OpenAI",
    base_url="",
    codecs={
        "openai_responses": OpenAIResponsesCodec(
            options=openai_responses.OPENAI_OPTIONS - {"stream_options"},
            # Deployment names are free text, but most contain the model's name.
            reasoners=openai_responses.OPENAI_REASONERS,
            tool_results=True,
        ),
        "openai_chat": OpenAIChatCodec(
            max_tokens_field="max_completion_tokens",
            options=openai_chat.OPENAI_OPTIONS,
            reasoning_fields=frozenset(),
            efforts={"max": "xhigh"},
            system_role="developer",
            strict_tools=True,
            allowed_tools=True,
        ),
    },
    auth=_api_key,
    needs_base_url=True,
    options=[
        Option(
            name="api_version",
            wanted='a version such as "2024-10-21", or "preview"',
            pattern=rf"{_DATE}|v1|preview|latest",
            env="AZURE_OPENAI_API_VERSION",
        ),
        Option(
            name="deployment",
            wanted="the name of a deployment, if deployments are not named like models",
            pattern=_DEPLOYMENT,
        ),
        Option(
            name="tenant",
            wanted="the id or the domain of a tenant of Entra ID",
            pattern=r"[\w.-]+",
            env="AZURE_OPENAI_TENANT_ID",
        ),
        Option(
            name="client_id",
            wanted="the application (client) id in Entra ID",
            pattern=r"[\w.-]+",
            env="AZURE_OPENAI_CLIENT_ID",
        ),
        Option(
            name="authority",
            wanted="the address of Entra ID, such as https://login.microsoftonline.us",
            pattern=r"https?://[\w.:-]+(/[\w.-]+)*/?",
            env="AZURE_OPENAI_AUTHORITY",
        ),
        Option(
            name="scope",
            wanted="the scope of tokens, such as https://ai.azure.com/.default",
            pattern=r"[a-z]+://[\x21-\x7e]+",
            env="AZURE_OPENAI_SCOPE",
        ),
    ],
    tidy=_tidy,
    usual_codec=_usual_codec,
    connect=_connect,
    key_env="AZURE_OPENAI_KEY",
    model_env="AZURE_OPENAI_DEPLOYMENT",
    base_url_env="AZURE_OPENAI_BASE_URL",
    secret_env="AZURE_OPENAI_CLIENT_SECRET",
    secret_options=_CLIENT,
    docs_url="https://learn.microsoft.com/azure/ai-foundry/openai/latest",
    models_path="",  # Azure lists deployable models, not deployments
)
