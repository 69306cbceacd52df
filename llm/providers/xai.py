"""xAI: Responses and chat completions."""

from __future__ import annotations

import re

from llm.provider import Provider
from llm.wire.codecs.openai_chat.codec import OpenAIChatCodec
from llm.wire.codecs.openai_responses.codec import OpenAIResponsesCodec

_EFFORTS = {"minimal": "low", "max": "high"}

PROVIDER = Provider(
    name="xai",
    label="xAI",
    base_url="https://api.x.ai/v1",
    codecs={
        "openai_responses": OpenAIResponsesCodec(
            reasoners=re.compile(r"grok-(?!.*non-reasoning)"),
            efforts=_EFFORTS,
            developer_role=False,
            strict_schemas=False,
            hosted_tools="xai",
        ),
        "openai_chat": OpenAIChatCodec(
            reasoning_fields=frozenset(), efforts=_EFFORTS, closed_schemas=False
        ),
    },
    key_env="XAI_API_KEY",
    model_env="XAI_MODEL",
    base_url_env="XAI_API_BASE",
    default_model="grok-4.7",
    docs_url="https://docs.x.ai/docs/api-reference",
)
