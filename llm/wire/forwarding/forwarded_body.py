"""A client's own body, as a part of a `Request`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from llm.wire.items import Item

#: Fields of the three APIs that limit the output, of which a body has one.
OUTPUT_LIMITS = ("max_completion_tokens", "max_tokens", "max_output_tokens")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ForwardedBody:
    """What a client has sent, without the fields that this server serves itself."""

    api: str  # the beginning of the names of the API's codecs
    fields: Mapping[str, Any]
    headers: Mapping[str, str] = field(default_factory=dict)
    #: The request in canonical form, for the model of the route. Raises BadRequest.
    convert: Callable[[Any], Any]
    #: Whether the answer's bytes are wanted too (`deltas.FrameDelta`).
    wants_frames: bool = True
    #: Whether the client has not asked for the last chunk, which has only the usage.
    hides_usage: bool = False
    #: Options that staff have set for the model, by their names in `Request`.
    defaults: Mapping[str, Any] = field(default_factory=dict)
    #: Definitions of this server's tools, offered besides the client's own.
    own_tools: Sequence[dict[str, Any]] = ()
    #: What followed the body in the same request: calls of `own_tools` and outputs.
    answered: Sequence[Item] = ()
    size: int = 0  # bytes

    @property
    def max_output_tokens(self) -> int | None:
        found = [self.fields.get(name) for name in OUTPUT_LIMITS]
        fallbacks = self.fields.get(
            "fallbacks"
        )  # Anthropic's, with limits of their own
        if isinstance(fallbacks, list):
            entries = (entry for entry in fallbacks if isinstance(entry, dict))
            found += [entry.get("max_tokens") for entry in entries]
        return max((n for n in found if isinstance(n, int) and n > 0), default=None)

    def limit_output(self, most: int) -> ForwardedBody:
        """The body with its limits of output tokens lowered to `most` where they are
        larger."""
        larger = {
            name: most
            for name in OUTPUT_LIMITS
            if isinstance(number := self.fields.get(name), int) and number > most
        }
        fields = {**self.fields, **larger} if larger else self.fields
        default = self.defaults.get("max_output_tokens")
        limit = most if default is None else min(default, most)
        defaults = {**self.defaults, "max_output_tokens": limit}
        return replace(self, fields=fields, defaults=defaults)
