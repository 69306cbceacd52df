"""The built-in demo: a script, no AI, with OpenAI's APIs; see `llm.demo`."""

from __future__ import annotations

import re

from llm.provider import Provider
from llm.wire.codecs.openai_chat import host_options as openai_chat
from llm.wire.codecs.openai_chat.codec import OpenAIChatCodec
from llm.wire.codecs.openai_responses import codec as openai_responses
from llm.wire.codecs.openai_responses.codec import OpenAIResponsesCodec

PROVIDER = Provider(
    name="demo",
    label="Demo (no AI)",
    base_url="self:/demo/v1",  # this server, at whatever address it listens
    codecs={
        "openai_responses": OpenAIResponsesCodec(
            options=openai_responses.OPENAI_OPTIONS,
            reasoners=re.compile("demo"),
        ),
        "openai_chat": OpenAIChatCodec(
            reasoning_fields=frozenset(),
            max_tokens_field="max_completion_tokens",
            options=openai_chat.OPENAI_OPTIONS,
            system_role="developer",
            files=True,
            strict_tools=True,
            allowed_tools=True,
        ),
    },
    default_model="demo",
)
