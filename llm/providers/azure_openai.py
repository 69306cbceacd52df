"""Azure OpenAI by its v1 address, `https://RESOURCE.openai.azure.com/openai/v1`.

A model's name is that of a deployment. The dated addresses, with a deployment in the
path and an `api-version`, are another wire and not spoken.
"""

from __future__ import annotations

from llm.provider import Provider
from llm.wire.codecs import openai_chat, openai_responses
from llm.wire.codecs.openai_chat import OpenAIChatCodec
from llm.wire.codecs.openai_responses import OpenAIResponsesCodec


def _api_key(api_key: str) -> dict[str, str]:
    return {"api-key": api_key}


PROVIDER = Provider(
    name="azure_openai",
    label="Azure OpenAI",
    base_url="",
    codecs={
        "openai_responses": OpenAIResponsesCodec(
            options=openai_responses.OPENAI_OPTIONS - {"stream_options"},
            # Deployments are named as people like; most keep the model's name.
            reasoners=openai_responses.OPENAI_REASONERS,
        ),
        "openai_chat": OpenAIChatCodec(
            max_tokens_field="max_completion_tokens",
            options=openai_chat.OPENAI_OPTIONS,
            efforts={"max": "xhigh"},
            system_role="developer",
            strict_tools=True,
            allowed_tools=True,
        ),
    },
    auth=_api_key,
    needs_base_url=True,
    key_env="AZURE_OPENAI_API_KEY",
    model_env="AZURE_OPENAI_MODEL",
    base_url_env="AZURE_OPENAI_API_BASE",
    docs_url="https://learn.microsoft.com/azure/ai-foundry/openai/latest",
)
