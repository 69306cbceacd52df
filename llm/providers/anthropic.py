"""Anthropic. `base_url` lacks "/v1" because the paths begin with it."""

from __future__ import annotations

from llm.provider import Provider
from llm.wire.codecs.anthropic.codec import VERSION_WITH_SAMPLING, AnthropicCodec


def _x_api_key(api_key: str) -> dict[str, str]:
    """Use `x-api-key`, which all versions and all compatible hosts accept."""
    return {"x-api-key": api_key} if api_key else {}


PROVIDER = Provider(
    name="anthropic",
    label="Anthropic",
    base_url="https://api.anthropic.com",
    codecs={
        "anthropic": AnthropicCodec(),
        "anthropic_2023": AnthropicCodec(
            name="anthropic_2023", version=VERSION_WITH_SAMPLING
        ),
    },
    auth=_x_api_key,
    models_path="/v1/models?limit=1000",
    key_env="ANTHROPIC_API_KEY",
    model_env="ANTHROPIC_MODEL",
    base_url_env="ANTHROPIC_API_BASE",
    default_model="claude-sonnet-5-5",
    docs_url="https://platform.claude.com/docs/en/api/messages",
    counts_tokens=True,
)
