"""The strict fakes of `tests.llm.strict` behind an address, by provider and model."""

from __future__ import annotations

import json
from typing import Any

from llm.provider import Endpoint
from llm.providers import all_providers
from llm.wire.items import Issuer
from tests.conversations.gateway.forwarding.hosts import Received, Reply
from tests.llm.strict import chat, gemini, messages, responses
from tests.llm.strict.rules import Refusal

#: The provider's kind, the wire format, the model, and the host.
MODELS: list[tuple[str, str, str, Any]] = [
    ("openai", "openai_responses", "gpt-6-luna", responses),
    ("xai", "openai_responses", "grok-4.7", responses),
    ("openai", "openai_chat", "gpt-6-luna", chat),
    ("deepseek", "openai_chat", "deepseek-v4-pro", chat),
    ("anthropic", "anthropic", "claude-sonnet-5-5", messages),
    ("anthropic", "anthropic", "claude-haiku-4-5", messages),
    ("gemini", "gemini", "gemini-3.8-flash", gemini),
]


def strict_reply(kind: str, codec: str, fake: Any, received: Received) -> Reply:
    body = received.body
    model = body.get("model") or received.path.rpartition("/")[2].partition(":")[0]
    answered = fake.answer(_usual(body), issuer_of(kind, codec, model))
    if isinstance(answered, Refusal):
        error = {"message": answered.message, "type": "invalid_request_error"}
        text = json.dumps({"type": "error", "error": error})
        return answered.status, "application/json", text.encode()
    return 200, "text/event-stream", answered


def issuer_of(kind: str, codec: str, model: str) -> Issuer:
    provider = all_providers()[kind]
    endpoint = Endpoint(provider=provider, codec=provider.codec(codec), route="1:1")
    return endpoint.issuer(model)


def _usual(body: dict[str, Any]) -> dict[str, Any]:
    """With the short forms written out, which the fakes do not read."""
    body = json.loads(json.dumps(body))
    if isinstance(body.get("input"), str):
        body["input"] = [{"role": "user", "content": body["input"]}]
    for message in body.get("messages", ()) if "max_tokens" in body else ():
        if isinstance(message["content"], str):
            message["content"] = [{"type": "text", "text": message["content"]}]
    return body
