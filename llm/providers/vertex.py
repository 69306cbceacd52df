"""Gemini on Vertex AI. The base URL ends with the project and location:
`https://LOCATION-aiplatform.googleapis.com/v1beta1/projects/PROJECT/locations/LOCATION`
(`https://aiplatform.googleapis.com/...` for the location `global`).

The key is a service account's key as JSON, which is exchanged for access tokens, or
such a token itself, which is valid for an hour.
"""

from __future__ import annotations

from llm.keys.token_credentials import with_service_account
from llm.provider import Provider
from llm.wire.codecs.gemini.codec import GeminiCodec

PROVIDER = Provider(
    name="vertex",
    label="Google Vertex AI",
    base_url="",
    codecs={"gemini": GeminiCodec(vertex=True)},
    needs_base_url=True,
    connect=with_service_account,
    key_env="VERTEX_ACCESS_TOKEN",
    model_env="VERTEX_MODEL",
    base_url_env="VERTEX_API_BASE",
    docs_url="https://cloud.google.com/vertex-ai/generative-ai/docs",
    models_path="",  # Vertex lists all publishers' models, not the project's
)
