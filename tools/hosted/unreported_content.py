"""Content that a host adds to a conversation without an item that shows it. Pure.

A search of Chat Completions or Gemini leaves citations in a text, but an answer that
only calls a tool has no text. So what such a host may have read counts as foreign.

Source: https://openrouter.ai/docs/features/web-search
Source: https://docs.perplexity.ai/getting-started/models
Source: https://console.groq.com/docs/compound
Source: https://platform.openai.com/docs/guides/tools-web-search
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from llm.provider import Route

#: Names of models that search before each answer: of Perplexity, of Groq, OpenAI's for
#: Chat Completions, and any at OpenRouter with this end.
_SEARCHING_MODEL = re.compile(
    r"(?:.*/)?(?:sonar|compound)(?![a-z]).*"
    r"|.*-search-(?:preview|api)(?:-[\d-]+)?"
    r"|.*[:-]online"
)
#: Wire formats whose answers have an item of each call of the host's own tools.
_REPORTING = ("anthropic", "openai_responses")
#: Kinds whose results nobody else has written.
_OWN_CONTENT = {"image_generation"}


def may_add_content(route: Route, kinds: Iterable[str]) -> bool:
    """Whether the host, which is sent hosted tools of these kinds, may add content that
    no item of its answer shows."""
    if may_search_by_name(route.model):
        return True
    if route.endpoint.codec.name.startswith(_REPORTING):
        return False
    return not _OWN_CONTENT.issuperset(kinds)


def may_search_by_name(model: object) -> bool:
    """Whether a model of this name searches before each answer."""
    return isinstance(model, str) and _SEARCHING_MODEL.fullmatch(model) is not None
