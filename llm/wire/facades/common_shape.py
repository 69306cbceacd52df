"""Field checks that several APIs share."""

from __future__ import annotations

from typing import Any

from llm.wire.facades.field_checks import (
    Check,
    array,
    boolean,
    integer,
    mapping,
    nonempty,
    number,
    record,
    refuse,
    strict_record,
    string,
    values,
    word,
)

MAX_CACHE_SECONDS = 30 * 24 * 3600
SERVER_TOOLS = "parley:tools"  # type of the tool entry that stands for server tools
#: The type of a tool, and its name if the type has names.
Choice = tuple[str, str | None]

text_part = record({"text": string}, ["text"])
names = array(nonempty)
schema_form = record({"name": nonempty, "schema": mapping, "strict": boolean})
#: An extension of our own, so an unknown field is a mistake.
parley = strict_record(
    {
        "buffer_tool_calls": boolean,
        "cache_seconds": integer(0, MAX_CACHE_SECONDS),
        "explain": boolean,
        "ignore_invalid_options": boolean,
        "receipts": boolean,
        "tags": names,
    }
)
_NO_LOGPROBS = "log probabilities are not supported."
no_logprobs = refuse(_NO_LOGPROBS, (None, False))
EFFORTS = word("none", "minimal", "low", "medium", "high", "xhigh", "max")
VERBOSITY = word("low", "medium", "high")
TURNED_OFF: tuple[Any, ...] = (None, False, [], {}, "")

#: Options that Chat Completions and Responses share.
OPENAI: dict[str, Check] = {
    "model": nonempty,
    "frequency_penalty": number(-2, 2),
    "metadata": values(string),
    "parallel_tool_calls": boolean,
    "parley": parley,
    "presence_penalty": number(-2, 2),
    "prompt_cache_key": string,
    "safety_identifier": string,
    "service_tier": string,
    "store": boolean,
    "stream": boolean,
    "stream_options": record({"include_usage": boolean}),
    "temperature": number(0, 2),
    "top_logprobs": refuse(_NO_LOGPROBS, (None, 0)),
    "top_p": number(0, 1),
    "user": string,
}


server_tool = strict_record({"names": names}, "type")
description_fields = {"name": nonempty, "description": string, "strict": boolean}
flat_function = record({**description_fields, "parameters": mapping}, ["name"])
flat_custom = record({**description_fields, "format": mapping}, ["name"])
