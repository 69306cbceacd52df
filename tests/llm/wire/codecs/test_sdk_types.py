"""Chat Completions' own SDK knows every field that we send.

For Responses, Messages and generateContent the tests of those codecs check the same.
"""

from __future__ import annotations

from typing import Any

import pytest
from openai.types.chat.completion_create_params import CompletionCreateParams
from pydantic import ConfigDict, TypeAdapter

from llm.adaptation.adapt import Adaptation
from llm.adaptation.structured import parse_output_format
from llm.management.commands.feature_table import FEATURES
from llm.providers import all_providers
from llm.wire.items import user_message
from llm.wire.request import Request
from tests.llm.hosts import route_at

# A list, as pydantic takes no config beside a bare TypedDict.
SDK = TypeAdapter(list[CompletionCreateParams], config=ConfigDict(extra="forbid"))
#: Hosts whose wire is to be OpenAI's to the letter; the others have fields of theirs.
ALIKE = ("openai", "azure_openai", "openai_compatible", "llamacpp", "vllm", "together")


@pytest.mark.parametrize("feature", FEATURES)
@pytest.mark.parametrize("kind", ALIKE)
@pytest.mark.parametrize("stream", [True, False])
def test_the_sdk_knows_every_field(kind: str, feature: str, stream: bool):
    route = route_at(
        kind, "openai_chat", model=all_providers()[kind].default_model or "m"
    )
    needed, beside = FEATURES[feature]
    fields: dict[str, Any] = {"items": [user_message("Hi")], **beside, **needed}
    request = Request(model=route.model, stream=stream, max_output_tokens=99, **fields)
    adapted = Adaptation(
        request, route, output_format=parse_output_format(request), ignore_invalid=True
    )
    SDK.validate_python([route.endpoint.codec.encode(adapted.request)])
