"""Gemini on Vertex AI. The address names project and location and ends there:
`https://LOCATION-aiplatform.googleapis.com/v1beta1/projects/PROJECT/locations/LOCATION`
(`https://aiplatform.googleapis.com/...` for the location `global`).

The key is the JSON of a service account's key, for which we get tokens; or such a token
itself, which lasts an hour.
"""

from __future__ import annotations

from llm.credentials import with_service_account
from llm.provider import Provider
from llm.wire.codecs.gemini import GeminiCodec

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
    models_path="",  # a catalogue of all publishers, not what the project may use
)
