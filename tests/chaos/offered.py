"""The rows of a server under which the chaos provider's models are known."""

from __future__ import annotations

from typing import Any

from tests.serving import ServerProcess

from .wish import Wish

#: By wire format: the kind of provider and the end of its address.
HOSTS = {
    "chat": ("openai_compatible", "/v1"),
    "responses": ("openai", "/v1"),
    "anthropic": ("anthropic", ""),
    "gemini": ("gemini", "/v1beta"),
}
_ROWS = """
from llm.models import ApiKey, LanguageModel, Provider
from tools.models import Tool
for wire, (kind, path) in {hosts!r}.items():
    for name in (wire, wire + "-faulty", wire + "-limited"):
        host = Provider.objects.create(
            name="Chaos " + name, kind=kind, allow_private_network=True,
            base_url="http://127.0.0.1:{port}" + path,
        )
        ApiKey.objects.create(provider=host, secret="chaos-" + name)
        LanguageModel.objects.create(
            provider=host, name="chaos", alias="chaos-" + name, capabilities={can!r}
        )
Tool.objects.sync()
"""
CAN = {"tools": True, "parallel_tools": True, "hosted_tools": ["web_search"]}
SEARCHES = {"type": "web_search"}


def offer(server: ServerProcess, port: int) -> None:
    """Three models for each wire format: a fault rests no key of those without one,
    and a rate limit none of those with another."""
    code = _ROWS.format(hosts=HOSTS, port=port, can=CAN)
    server.manage("shell", "-v0", "-c", code)


def model_of(wire: str, fault: str) -> str:
    match fault:
        case "":
            return f"chaos-{wire}"
        case "429":
            return f"chaos-{wire}-limited"
    return f"chaos-{wire}-faulty"


def options_of(wish: Wish) -> dict[str, Any]:
    """Of the turn: a provider's own tool is declared where the provider calls it."""
    if wish.scenario in ("hosted", "pause"):
        return {"tools": [SEARCHES]}
    return {}
