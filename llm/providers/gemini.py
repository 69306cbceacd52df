"""Google Gemini, in its own format."""

from __future__ import annotations

from llm.provider import Provider
from llm.wire.codecs.gemini.codec import GeminiCodec


def _api_key(api_key: str) -> dict[str, str]:
    return {"x-goog-api-key": api_key}  # not in the URL, which logs contain


PROVIDER = Provider(
    name="gemini",
    label="Google Gemini",
    base_url="https://generativelanguage.googleapis.com/v1beta",
    codecs={"gemini": GeminiCodec()},
    auth=_api_key,
    key_env="GEMINI_API_KEY",
    model_env="GEMINI_MODEL",
    base_url_env="GEMINI_API_BASE",
    default_model="gemini-3.8-flash",
    docs_url="https://ai.google.dev/api",
    models_path="/models?pageSize=1000",
    counts_tokens=True,
)
