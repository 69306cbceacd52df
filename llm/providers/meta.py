"""Meta's Model API for its closed models; Llama models are served by other providers.

The API has no tool choice, and its models always reason.
"""

from __future__ import annotations

import re

from llm.provider import Provider
from llm.wire.codecs.openai_chat.codec import OpenAIChatCodec
from llm.wire.codecs.openai_responses.codec import OpenAIResponsesCodec

_EFFORTS = {"none": "minimal"}

PROVIDER = Provider(
    name="meta",
    label="Meta",
    base_url="https://api.meta.ai/v1",
    codecs={
        "openai_responses": OpenAIResponsesCodec(
            options=frozenset({"phase"}),
            reasoners=re.compile(""),
            efforts=_EFFORTS,
            takes_tool_choice=False,
            hosted_tools="meta",
        ),
        "openai_chat": OpenAIChatCodec(
            reasoning_fields=frozenset(),
            drops=frozenset({"stop"}),
            efforts=_EFFORTS,
            strict_tools=True,
            takes_tool_choice=False,
            hosted_tools="options",
        ),
    },
    key_env="META_API_KEY",
    model_env="META_MODEL",
    base_url_env="META_API_BASE",
    default_model="muse-spark-1.3",
    docs_url="https://dev.meta.ai",
)
