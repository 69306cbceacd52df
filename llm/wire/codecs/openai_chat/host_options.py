"""The differences between hosts of Chat Completions, one field for each.

A host is a file in `llm/providers` that sets some of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from llm.errors import LLMError
from llm.wire.codecs.feature_fallbacks import open_schema
from llm.wire.codecs.openai_chat.hosted_tools import Dialect
from llm.wire.json_schema.reduction import without_refs

#: Options of OpenAI that other hosts ignore at best.
OPENAI_OPTIONS = frozenset(
    {
        "metadata",
        "prompt_cache_key",
        "safety_identifier",
        "service_tier",
        "verbosity",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostOptions:
    """The defaults suit most hosts; they are not OpenAI's own set of features."""

    name: str = "openai_chat"
    #: Names of the quirks that staff have switched, which a client's own body follows.
    switched: frozenset[str] = frozenset()
    path_template: str = "/chat/completions"  # may hold {model}
    deployment: str = ""  # Azure: the deployment's name, sent instead of the model's

    max_tokens_field: str = "max_tokens"
    seed_field: str = "seed"
    #: The options that request usage in a stream; {} if the host always sends it.
    stream_options: Mapping[str, Any] = field(
        default_factory=lambda: {"include_usage": True}
    )
    options: frozenset[str] = frozenset()  # the supported ones of OPENAI_OPTIONS
    drops: frozenset[str] = frozenset()  # fields that the host refuses or ignores
    #: Fields of every request, which the model's extras override.
    defaults: Mapping[str, Any] = field(default_factory=dict)
    #: The same for models whose names begin so.
    model_defaults: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    #: "reasoning_effort", or "reasoning" for OpenRouter's object.
    effort_field: str = "reasoning_effort"
    efforts: Mapping[str, str] = field(default_factory=dict)  # canonical to the host's
    #: Fields for the effort "none" where a separate switch turns reasoning off:
    #: DeepSeek.
    no_reasoning: Mapping[str, Any] = field(default_factory=dict)
    #: Field in which plain reasoning is sent back with its message; "" for none.
    reasoning_echo: str = ""
    #: Fields of reasoning that its assistant messages take, of a host that refuses
    #: unknown ones; None for a host that takes or ignores any.
    reasoning_fields: frozenset[str] | None = None
    think_tags: bool = False  # reasoning arrives as "<think>…</think>" in the text
    think_begun: bool = False  # such a text may lack the first tag

    system_role: str = "system"
    merge_system: bool = False  # one system message, in front (strict templates)
    image_urls: bool = True  # images by address, besides inline images
    files: bool = False
    #: Fields of the last assistant message, and of the body, that mark that message as
    #: the beginning of the answer.
    prefill_message: Mapping[str, Any] = field(default_factory=dict)
    prefill_fields: Mapping[str, Any] = field(default_factory=dict)
    call_id_length: int | None = None  # Mistral: exactly 9 letters and digits

    strict_tools: bool = False  # supports `strict`
    allowed_tools: bool = False  # supports a choice among some tools
    takes_tool_choice: bool = True  # False if only the model may choose
    hosted_tools: Dialect = ""  # the format of hosted tools
    #: False if the host refuses `additionalProperties: false`: xAI.
    closed_schemas: bool = True
    inline_refs: bool = False  # expand `$ref`, which Llama's templates do not follow

    #: Overrides of the usual meaning of HTTP statuses.
    statuses: Mapping[int, type[LLMError]] = field(default_factory=dict)

    def fit_schema(self, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        """`fields`, with any schema in them in the form that this host takes."""
        opened: Mapping[str, Any] = (
            fields if self.closed_schemas else open_schema(fields)
        )
        if not self.inline_refs:
            return opened
        return {
            name: without_refs(value) if name in ("parameters", "schema") else value
            for name, value in opened.items()
        }
