"""OpenRouter: chat completions, with the cost of each call."""

from __future__ import annotations

from llm.errors import ContentPolicy
from llm.provider import KeySignIn, Provider
from llm.wire.codecs.openai_chat.codec import OpenAIChatCodec

PROVIDER = Provider(
    name="openrouter",
    label="OpenRouter",
    base_url="https://openrouter.ai/api/v1",
    codecs={
        "openai_chat": OpenAIChatCodec(
            defaults={"usage": {"include": True}},  # adds the cost to the usage
            effort_field="reasoning",
            options=frozenset({"verbosity"}),
            files=True,
            strict_tools=True,
            hosted_tools="openrouter",
            statuses={403: ContentPolicy},  # from moderation; a wrong key gets 401
        )
    },
    headers={"X-Title": "Parley"},  # the app's name on OpenRouter's pages
    key_env="OPENROUTER_API_KEY",
    model_env="OPENROUTER_MODEL",
    base_url_env="OPENROUTER_API_BASE",
    default_model="openrouter/auto",
    # Source: https://openrouter.ai/docs/use-cases/oauth-pkce
    key_sign_in=KeySignIn("https://openrouter.ai/auth", "/auth/keys"),
    docs_url="https://openrouter.ai/docs/api-reference/overview",
)
