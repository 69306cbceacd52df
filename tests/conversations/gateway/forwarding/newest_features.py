"""Bodies with the newest fields of each API, as the vendors' references had them in
November 2026; the older ones are in `features.py`.

Source: https://platform.openai.com/docs/api-reference/chat/create
Source: https://platform.claude.com/docs/en/api/messages
Source: https://platform.openai.com/docs/api-reference/responses/create
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Body = dict[str, Any]

_HI = [{"role": "user", "content": "Hi"}]
_SCHEMA = {
    "type": "object",
    "properties": {"at": {"$ref": "#/$defs/place"}},
    "$defs": {"place": {"type": "string", "default": "", "x-order": 1}},
    "required": [],
    "additionalProperties": False,
}
_ODD: list[Any] = [
    "",
    0,
    0.1,
    -1e-7,
    12345678901234567890,
    None,
    True,
    [],
    {},
    "é\u2028",
]


def _each(*fields: Body) -> Iterator[Body]:
    """A body for each, and one with all of them."""
    yield from fields
    yield {name: value for each in fields for name, value in each.items()}


# Messages

_FETCHED = {"type": "web_fetch_result", "url": "https://x.org", "retrieved_at": None}
_RAN = {"type": "code_execution_result", "stdout": "1", "stderr": "", "return_code": 0}
_ENCRYPTED = {"type": "encrypted_code_execution_result", "encrypted_stdout": "ZQ=="}
_SEARCHED = {
    "type": "web_search_result",
    "url": "https://x.org",
    "title": "X",
    "page_age": None,
    "encrypted_content": "ZQ==",
}
_ERROR = {"type": "web_search_tool_result_error", "error_code": "max_uses_exceeded"}


def _served(name: str, content: Any, kind: str = "") -> Body:
    """A turn in which Anthropic has run a tool."""
    call = {"type": "server_tool_use", "id": "srvtoolu_1", "name": name, "input": {}}
    call["caller"] = {"type": "direct"}
    result = {"type": kind or f"{name}_tool_result", "tool_use_id": "srvtoolu_1"}
    blocks = [call, {**result, "content": content}, {"type": "text", "text": "Done."}]
    answer = {"role": "assistant", "content": blocks}
    return {"messages": [*_HI, answer, {"role": "user", "content": "Go on"}]}


def _answered(*blocks: Body) -> Body:
    answer = {"role": "assistant", "content": list(blocks)}
    return {"messages": [*_HI, answer, {"role": "user", "content": "Go on"}]}


def _said(*blocks: Body) -> Body:
    return {"messages": [{"role": "user", "content": list(blocks)}]}


def _tool(**fields: Any) -> Body:
    return {"tools": [{"name": "look", "input_schema": _SCHEMA, **fields}]}


_THOUGHT = {"type": "thinking", "thinking": "", "signature": "c2ln"}
_TEXT = {"type": "text", "text": "Done."}
_USE = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"at": "x"}}
_PDF = {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="}


def _result(content: Any, **fields: Any) -> Body:
    result = {"type": "tool_result", "tool_use_id": "toolu_1", **fields}
    result |= {} if content is None else {"content": content}
    answer = {"role": "assistant", "content": [_THOUGHT, _USE]}
    return {"messages": [*_HI, answer, {"role": "user", "content": [result]}]}


MESSAGES: list[Body] = [
    *_each(
        {"inference_geo": "us"},
        {"speed": "fast"},
        {"service_tier": "standard_only"},
        {"diagnostics": {"previous_message_id": "msg_1"}},
        {"container": {"id": "container_1", "skills": [{"skill_id": "pdf"}]}},
        {"context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]}},
        {"compaction": {"type": "auto", "trigger": {"type": "input_tokens"}}},
        {"fallbacks": [{"model": "claude-opus-5"}]},
        {"billing_policy": {"type": "prepaid"}},
        {"output_config": {"effort": "xhigh", "task_budget": {"total": 20000}}},
        {"cache_control": {"type": "ephemeral", "ttl": "1h"}},
        {"metadata": {"user_id": "sha256:0"}},
        {"a_field_of_tomorrow": _ODD},
    ),
    {"max_tokens": 0},
    {"thinking": {"type": "adaptive", "display": "omitted"}},
    {"thinking": {"type": "adaptive", "display": "updates"}},
    {"thinking": {"type": "between_tools"}},
    {"thinking": {"type": "disabled"}},
    {
        "thinking": {
            "type": "adaptive",
            "block_binding": {"prefix_mismatch_behavior": "drop_block"},
        }
    },
    {"output_config": {"format": {"type": "json_schema", "schema": _SCHEMA}}},
    {"system": [{"type": "text", "text": "Be terse.", "citations": None}]},
    _tool(strict=True, eager_input_streaming=True, type="custom"),
    _tool(defer_loading=True, input_examples=[{"at": "x"}]),
    _tool(allowed_callers=["code_execution_20260521"]),
    _tool(cache_control={"type": "ephemeral", "ttl": "5m"}),
    {**_tool(), "tool_choice": {"type": "tool", "name": "look"}},
    {**_tool(), "tool_choice": {"type": "none"}},
    {"tools": [{"type": "web_search_20260318", "name": "web_search", "max_uses": 1}]},
    {"tools": [{"type": "web_fetch_20260318", "name": "web_fetch"}]},
    {"tools": [{"type": "code_execution_20260521", "name": "code_execution"}]},
    {"tools": [{"type": "tool_search_tool_bm25_20251119", "name": "search"}]},
    {"tools": [{"type": "bash_20250124", "name": "bash"}]},
    {"tools": [{"type": "memory_20250818", "name": "memory"}]},
    {"tools": [{"type": "browser_20260801", "name": "browser", "viewport": {"w": 1}}]},
    {
        "mcp_servers": [{"type": "url", "url": "https://x.org", "name": "x"}],
        "tools": [
            {
                "type": "mcp_toolset",
                "mcp_server_name": "x",
                "default_config": {"enabled": True, "defer_loading": False},
                "configs": {"t": {"enabled": False}},
            }
        ],
    },
    _served("web_search", [_SEARCHED]),
    _served("web_search", _ERROR),
    _served("web_fetch", _FETCHED),
    _served("code_execution", _RAN),
    _served("code_execution", _ENCRYPTED),
    _served("bash_code_execution", {"type": "bash_code_execution_result"}),
    _served("tool_search", {"type": "tool_search_tool_search_result"}),
    _answered({"type": "mcp_tool_listing", "mcp_server_name": "x", "tools": []}, _TEXT),
    _answered(
        {"type": "mcp_tool_use", "id": "mcptoolu_1", "name": "t", "server_name": "x"},
        {"type": "mcp_tool_result", "tool_use_id": "mcptoolu_1", "is_error": False},
        _TEXT,
    ),
    _answered({"type": "compaction", "content": "So far", "signature": "c2ln"}, _TEXT),
    _answered({"type": "compaction", "content": None, "encrypted_content": "Z"}),
    _answered({"type": "fallback", "from": {"model": "a"}, "to": {"model": "b"}}),
    _answered({"type": "advisor_tool_result", "tool_use_id": "t", "content": []}),
    _answered({"type": "redacted_thinking", "data": "ZQ=="}, _THOUGHT, _TEXT),
    _answered({"type": "container_upload", "file_id": "file_1"}, _TEXT),
    _answered({**_TEXT, "citations": [{"type": "page_location", "cited_text": "x"}]}),
    _answered({**_TEXT, "citations": [{"encrypted_index": "Z", "url": "u"}]}),
    _answered({**_TEXT, "citations": []}),
    _answered({**_TEXT, "citations": None}),
    _answered({"type": "a_block_of_tomorrow", "deep": [_ODD]}),
    _said({"type": "document", "source": _PDF, "title": "A", "context": "B"}),
    _said({"type": "document", "source": {"type": "file", "file_id": "file_1"}}),
    _said({"type": "document", "source": {"type": "content", "content": [_TEXT]}}),
    _said({"type": "image", "source": {"type": "file", "file_id": "file_1"}}),
    _said({"type": "search_result", "source": "s", "title": "t", "content": [_TEXT]}),
    _said({"type": "container_upload", "file_id": "file_1"}, _TEXT),
    _result(None),
    _result([]),
    _result("", is_error=True, cache_control={"type": "ephemeral"}),
    _result([{"type": "tool_reference", "tool_name": "look"}]),
    _result([{"type": "document", "source": _PDF}], toolset_name="browser"),
    _result([{"type": "image", "source": {"type": "url", "url": "https://x.org"}}]),
    {
        "messages": [
            *_HI,
            {"role": "system", "content": [_TEXT]},
            {"role": "assistant", "content": "Hello"},
            {"role": "user", "content": "Again"},
            {"role": "user", "content": [{**_TEXT, "cache_control": None}]},
            {"role": "system", "content": "Be brief."},
        ]
    },
    {"messages": [*_HI, {"role": "assistant", "content": "Once"}]},
    {"messages": [*_HI, {"role": "assistant", "content": []}, *_HI]},
]

# Chat Completions

_CALL = {
    "id": "call_1",
    "type": "function",
    "function": {"name": "look", "arguments": '{"at": "x"}'},
}
_CUSTOM = {"id": "call_2", "type": "custom", "custom": {"name": "sh", "input": "ls"}}
_OUTPUT = {"role": "tool", "tool_call_id": "call_1", "content": "3"}


def _function(**fields: Any) -> Body:
    return {"type": "function", "function": {"name": "look", **fields}}


def _reply(**fields: Any) -> Body:
    answer = {"role": "assistant", **fields}
    outputs = [_OUTPUT] if fields.get("tool_calls") else []
    return {"messages": [*_HI, answer, *outputs, *_HI]}


def _part(*parts: Body) -> Body:
    return {"messages": [{"role": "user", "content": list(parts)}]}


CHAT: list[Body] = [
    *_each(
        {"prompt_cache_options": {"ttl": "30m", "mode": "explicit"}},
        {"moderation": {"mode": "block", "categories": ["hate"]}},
        {"service_tier": "ultrafast"},
        {"verbosity": "high"},
        {"reasoning_effort": "none"},
        {"safety_identifier": "u" * 128},
        {"prompt_cache_key": "k", "prompt_cache_retention": "in_memory"},
        {"store": False, "metadata": {"a": ""}},
        {"prediction": {"type": "content", "content": [_TEXT]}},
        {"modalities": ["text"]},
        {"logit_bias": {}},
        {"logprobs": False},
        {"top_logprobs": 0},
        {"n": 1},
        {"user": ""},
        {"seed": -1},
        {"temperature": 0},
        {"top_p": 1.0},
        {"frequency_penalty": -2},
        {"presence_penalty": 1e-7},
        {"stop": ""},
        {"max_completion_tokens": 1},
        {"response_format": {"type": "text"}},
        {"web_search_options": {"user_location": {"type": "approximate"}}},
        {"access_programs": ["cyber"]},
        {"a_field_of_tomorrow": _ODD},
    ),
    {"stream": True, "stream_options": {"include_obfuscation": False}},
    {"stream": True, "stream_options": {"include_usage": False, "x": 1}},
    {"stream": False, "stream_options": None},
    {"max_tokens": 5},
    {"tools": []},
    {"tools": [_function()]},
    {"tools": [_function(parameters=_SCHEMA, strict=None)]},
    {"tools": [_function(parameters={}, description="")]},
    {"tools": [_function(parameters=None, defer_loading=True)]},
    {"tools": [{"type": "custom", "custom": {"name": "sh", "format": None}}]},
    {
        "tools": [{"type": "custom", "custom": {"name": "sh"}}],
        "tool_choice": {"type": "custom", "custom": {"name": "sh"}},
    },
    {"tools": [_function()], "tool_choice": "none"},
    {
        "tools": [_function()],
        "tool_choice": {
            "type": "allowed_tools",
            "allowed_tools": {"mode": "auto", "tools": [_function()]},
        },
    },
    {
        "tools": [_function()],
        "tool_choice": {"type": "function", "function": {"name": "look"}},
    },
    {
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "a", "schema": _SCHEMA, "description": "d"},
        }
    },
    _reply(content=None, tool_calls=[_CALL]),
    _reply(content="", tool_calls=[_CALL], refusal=None, annotations=[]),
    _reply(content=[_TEXT], tool_calls=[{**_CALL, "index": 0}]),
    _reply(tool_calls=[{**_CALL, "function": {"name": "look", "arguments": ""}}]),
    _reply(content=[{"type": "refusal", "refusal": "No."}]),
    _reply(content=None, refusal="No."),
    _reply(content=None, audio={"id": "audio_1"}),
    _reply(content="x", name="bot"),
    _reply(content="x", annotations=[{"type": "url_citation", "url_citation": {}}]),
    _reply(content="x", tool_calls=None, function_call=None),
    _reply(content="x", reasoning="Hm."),
    _reply(content="x", reasoning_content="Hm.", reasoning_details=[]),
    _reply(content="x", a_field_of_tomorrow=_ODD),
    {
        "messages": [
            *_HI,
            {"role": "assistant", "tool_calls": [_CUSTOM]},
            {"role": "tool", "tool_call_id": "call_2", "content": [_TEXT]},
        ]
    },
    _part(
        {"type": "text", "text": "x", "prompt_cache_breakpoint": {"mode": "explicit"}}
    ),
    _part(
        {
            "type": "image_url",
            "image_url": {"url": "https://x.org/a", "detail": "original"},
        }
    ),
    _part({"type": "file", "file": {"filename": "a.pdf", "file_data": "data:,x"}}),
    _part({"type": "input_audio", "input_audio": {"data": "AA==", "format": "mp3"}}),
    _part({"type": "video_url", "video_url": {"url": "https://x.org/a.mp4"}}),
    _part({"type": "a_part_of_tomorrow", "deep": _ODD}),
    {"messages": [{"role": "developer", "content": [_TEXT]}, *_HI]},
    {"messages": [*_HI, {"role": "system", "content": "Late."}, *_HI]},
    {"messages": [{"role": "function", "name": "f", "content": "1"}, *_HI]},
]

# Responses


def _input(*items: Any) -> Body:
    return {"input": [*_HI, *items, {"role": "user", "content": "Go on"}]}


def _with_tool(kind: str, **fields: Any) -> Body:
    return {"tools": [{"type": kind, **fields}]}


_DIRECT = {"type": "direct"}

RESPONSES: list[Body] = [
    *_each(
        {"prompt_cache_options": {"mode": "explicit", "ttl": "12h", "prewarm": True}},
        {"prompt_cache_key": "k", "prompt_cache_retention": "24h"},
        {"moderation": {"mode": "flag"}},
        {"access_programs": ["bio"]},
        {"image": {"context_compression": "auto"}},
        {"context_management": [{"type": "compaction", "compact_threshold": 9000}]},
        {"truncation": "disabled"},
        {"service_tier": "ultrafast"},
        {"safety_identifier": "u", "user": "u"},
        {"max_tool_calls": 3},
        {"top_logprobs": 2},
        {"include": ["web_search_call.results", "message.output_text.logprobs"]},
        {"reasoning": {"effort": "max", "context": "all_turns", "mode": "pro"}},
        {"text": {"verbosity": "low", "format": {"type": "text"}}},
        {"prompt": {"id": "pmpt_1", "version": "2", "variables": {"a": "b"}}},
        {"metadata": {"a": ""}},
        {"temperature": 0},
        {"parallel_tool_calls": False},
        {"instructions": ""},
        {"max_output_tokens": 16},
        {"a_field_of_tomorrow": _ODD},
    ),
    {"stream": True, "stream_options": {"include_obfuscation": False}},
    {"text": {"format": {"type": "json_schema", "name": "a", "schema": _SCHEMA}}},
    {"text": {"format": {"type": "json_object"}}},
    _with_tool("function", name="f", parameters=None, strict=None),
    _with_tool("function", name="f", parameters=_SCHEMA, output_schema=_SCHEMA),
    _with_tool("function", name="f", defer_loading=True, **{"async": True}),
    _with_tool("function", name="f", allowed_callers=["programmatic"]),
    _with_tool("custom", name="sh", format={"type": "grammar", "syntax": "regex"}),
    _with_tool("web_search", filters={"allowed_domains": ["x.org"]}),
    _with_tool("web_search", external_web_access=False, search_context_size="low"),
    _with_tool("file_search", vector_store_ids=["vs_1"], ranking_options={}),
    _with_tool("code_interpreter", container={"type": "auto", "memory_limit": "1g"}),
    _with_tool("image_generation", partial_images=2, action="edit"),
    _with_tool("computer"),
    _with_tool("shell", environment={"type": "container_auto"}),
    _with_tool("apply_patch"),
    _with_tool("tool_search", execution="client"),
    _with_tool("namespace", name="n", tools=[{"type": "function", "name": "f"}]),
    _with_tool("programmatic_tool_calling"),
    _with_tool("mcp", server_label="x", tunnel_id="t", require_approval="never"),
    _with_tool("mcp", server_label="x", server_url="https://x.org", defer_loading=True),
    {
        **_with_tool("function", name="f"),
        "tool_choice": {
            "type": "allowed_tools",
            "mode": "auto",
            "tools": [{"type": "function", "name": "f"}],
        },
    },
    {**_with_tool("shell"), "tool_choice": {"type": "shell"}},
    _input(
        {"type": "message", "role": "assistant", "content": "x", "phase": "commentary"}
    ),
    _input(
        {
            "type": "message",
            "id": "msg_host",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": "x", "annotations": []}],
            "phase": None,
        }
    ),
    _input(
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "Z"}
    ),
    _input(
        {
            "type": "reasoning",
            "id": "rs_1",
            "summary": [{"type": "summary_text", "text": "Hm."}],
            "content": [{"type": "reasoning_text", "text": "Hm."}],
            "encrypted_content": None,
            "status": None,
        }
    ),
    _input(
        {
            "type": "function_call",
            "id": "fc_1",
            "call_id": "call_1",
            "name": "f",
            "namespace": "n",
            "caller": _DIRECT,
            "arguments": "{ }",
            "async": False,
        },
        {
            "type": "function_call_output",
            "call_id": "call_1",
            "output": [{"type": "input_image", "file_id": "file_1", "detail": "low"}],
            "status": None,
        },
    ),
    _input({"type": "custom_tool_call", "call_id": "c", "name": "sh", "input": "ls"})
    | _with_tool("custom", name="sh"),
    _input(
        {"type": "web_search_call", "id": "ws_1", "action": {"type": "find_in_page"}}
    ),
    _input({"type": "file_search_call", "id": "fs_1", "queries": [], "results": None}),
    _input({"type": "code_interpreter_call", "id": "ci_1", "code": "1", "outputs": []}),
    _input({"type": "image_generation_call", "id": "ig_1", "result": "AA=="}),
    _input({"type": "mcp_list_tools", "id": "mcpl_1", "tools": [], "error": None}),
    _input({"type": "mcp_call", "id": "mcp_1", "error": {"type": "http_error"}}),
    _input({"type": "mcp_approval_request", "id": "mcpr_1", "arguments": "{}"}),
    _input({"type": "mcp_approval_response", "approval_request_id": "mcpr_1"}),
    _input(
        {
            "type": "computer_call",
            "id": "cu_1",
            "call_id": "call_1",
            "actions": [{"type": "wait"}],
            "status": "completed",
        },
        {
            "type": "computer_call_output",
            "call_id": "call_1",
            "output": {
                "type": "computer_screenshot",
                "image_url": "data:image/png;base64,AA==",
            },
        },
    ),
    _input({"type": "shell_call", "call_id": "c", "action": {"commands": ["ls"]}}),
    _input({"type": "shell_call_output", "call_id": "c", "output": [{"stdout": ""}]}),
    _input({"type": "apply_patch_call", "call_id": "c", "operation": {"type": "x"}}),
    _input({"type": "apply_patch_call_output", "call_id": "c", "status": "failed"}),
    _input({"type": "tool_search_call", "call_id": None, "arguments": {}}),
    _input({"type": "tool_search_output", "call_id": None, "tools": []}),
    _input({"type": "additional_tools", "tools": [{"type": "function", "name": "f"}]}),
    _input({"type": "program", "id": "p", "fingerprint": "f", "code": "x"}),
    _input({"type": "program_output", "id": "p", "fingerprint": "f", "output": ""}),
    _input({"type": "compaction", "id": "cmp_1", "encrypted_content": "gAAAA"}),
    _input({"type": "configuration_update", "tools": []}),
    _input({"type": "compaction_trigger"}),
    _input({"type": "an_item_of_tomorrow", "deep": _ODD}),
    {
        "input": [
            {
                "role": "user",
                "content": [
                    {"type": "input_text", "text": "x", "prompt_cache_breakpoint": {}},
                    {
                        "type": "input_file",
                        "file_url": "https://x.org",
                        "detail": "low",
                    },
                    {
                        "type": "input_image",
                        "image_url": "https://x.org",
                        "detail": "original",
                    },
                ],
            }
        ]
    },
]
