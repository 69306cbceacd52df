"""Bodies with a feature each, from the vendors' references, cookbooks and SDK types.

Source: https://platform.openai.com/docs/api-reference/chat/create
Source: https://platform.claude.com/docs/en/api/messages
Source: https://platform.openai.com/docs/api-reference/responses/create
Source: https://openrouter.ai/docs/api-reference/chat-completion
Source: https://docs.vllm.ai/en/latest/serving/openai_compatible_server.html
Source: https://github.com/ggml-org/llama.cpp/tree/master/tools/server
Source: https://api-docs.deepseek.com/api/create-chat-completion
Source: https://docs.perplexity.ai/api-reference/chat-completions-post
Source: https://docs.mistral.ai/api
Source: https://console.groq.com/docs/api-reference
"""

from __future__ import annotations

from typing import Any

PNG = "iVBORw0KGgo="
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string", "enum": ["Oslo", "Rome"]}},
    "required": ["city"],
    "additionalProperties": False,
}
_HI = [{"role": "user", "content": "Hi"}]
_FORM = {"name": "answer", "schema": SCHEMA, "strict": True}
_TOOL = {
    "type": "function",
    "function": {"name": "look", "parameters": SCHEMA, "strict": True},
}
_CALL = {
    "id": "call_1",
    "type": "function",
    "function": {"name": "look", "arguments": '{"city": "Oslo"}'},
}
_CALLED = [
    *_HI,
    {"role": "assistant", "content": None, "tool_calls": [_CALL]},
    {"role": "tool", "tool_call_id": "call_1", "content": "3 °C"},
]

#: The provider's kind, and the fields of the body.
CHAT: list[tuple[str, dict[str, Any]]] = [
    ("openai", {"n": 3}),
    ("openai", {"logprobs": True, "top_logprobs": 5}),
    ("openai", {"logit_bias": {"1734": -100}}),
    ("openai", {"modalities": ["text", "audio"], "audio": {"voice": "alloy"}}),
    ("openai", {"prediction": {"type": "content", "content": "x"}}),
    ("openai", {"web_search_options": {"search_context_size": "low"}}),
    ("openai", {"metadata": {"a": "b"}, "store": True, "service_tier": "flex"}),
    ("openai", {"safety_identifier": "u", "prompt_cache_key": "k", "user": "me"}),
    ("openai", {"prompt_cache_retention": "24h", "verbosity": "low"}),
    ("openai", {"reasoning_effort": "xhigh", "max_completion_tokens": 9}),
    ("openai", {"response_format": {"type": "json_schema", "json_schema": _FORM}}),
    ("openai", {"response_format": {"type": "json_object"}, "seed": 4}),
    ("openai", {"stop": ["\n", "END"], "presence_penalty": 0.1}),
    ("openai", {"tools": [_TOOL], "tool_choice": "required"}),
    ("openai", {"tools": [_TOOL], "parallel_tool_calls": False, "messages": _CALLED}),
    (
        "openai",
        {
            "tools": [
                {
                    "type": "custom",
                    "custom": {
                        "name": "math",
                        "format": {
                            "type": "grammar",
                            "grammar": {"syntax": "lark", "definition": "start: A"},
                        },
                    },
                }
            ]
        },
    ),
    (
        "openai",
        {
            "messages": [
                *_HI,
                {
                    "role": "assistant",
                    "tool_calls": [
                        {
                            "id": "call_2",
                            "type": "custom",
                            "custom": {"name": "math", "input": "1+1"},
                        }
                    ],
                },
                {"role": "tool", "tool_call_id": "call_2", "content": "2"},
            ]
        },
    ),
    ("openai", {"functions": [{"name": "f"}], "function_call": "auto"}),
    (
        "openai",
        {
            "messages": [
                {"role": "developer", "content": "Be brief.", "name": "boss"},
                {"role": "user", "content": "Hi", "name": "ada"},
                {"role": "assistant", "content": "Hello", "name": "bot"},
                {"role": "developer", "content": "Now in French."},
                {"role": "user", "content": "Again"},
            ]
        },
    ),
    (
        "openai",
        {
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": "What is this?"},
                        {"type": "text", "text": "Look closely."},
                        {
                            "type": "image_url",
                            "image_url": {
                                "url": f"data:image/png;base64,{PNG}",
                                "detail": "high",
                            },
                        },
                        {"type": "file", "file": {"file_id": "file-1"}},
                        {
                            "type": "input_audio",
                            "input_audio": {"data": "AAA=", "format": "wav"},
                        },
                    ],
                }
            ]
        },
    ),
    (
        "openai",
        {
            "messages": [
                *_HI,
                {"role": "assistant", "content": "x", "audio": {"id": "audio_1"}},
                {"role": "user", "content": "Again"},
            ]
        },
    ),
    (
        "openrouter",
        {
            "models": ["a/b", "c/d"],
            "route": "fallback",
            "provider": {"data_collection": "deny", "zdr": True, "order": ["x"]},
            "plugins": [{"id": "web", "max_results": 3}],
            "reasoning": {"max_tokens": 2000, "exclude": False},
            "transforms": ["middle-out"],
            "usage": {"include": True},
        },
    ),
    (
        "openrouter",
        {
            "messages": [
                *_HI,
                {
                    "role": "assistant",
                    "content": "x",
                    "reasoning": "Hm.",
                    "reasoning_details": [
                        {"type": "reasoning.encrypted", "data": "c2Vh", "index": 0}
                    ],
                },
                {
                    "role": "user",
                    "content": [
                        {
                            "type": "text",
                            "text": "Again",
                            "cache_control": {"type": "ephemeral", "ttl": "1h"},
                        }
                    ],
                },
            ]
        },
    ),
    (
        "vllm",
        {
            "top_k": 20,
            "min_p": 0.1,
            "repetition_penalty": 1.1,
            "length_penalty": 1.0,
            "guided_json": SCHEMA,
            "structured_outputs": {"regex": "a+"},
            "chat_template_kwargs": {"enable_thinking": False},
            "add_generation_prompt": True,
            "ignore_eos": True,
            "prompt_logprobs": 2,
            "priority": 3,
            "stop_token_ids": [7],
            "best_of": 2,
            "use_beam_search": False,
        },
    ),
    (
        "llamacpp",
        {
            "cache_prompt": True,
            "grammar": "root ::= [a-z]+",
            "mirostat": 2,
            "n_probs": 3,
            "samplers": ["top_k"],
            "id_slot": 1,
            "typical_p": 0.9,
            "dry_multiplier": 0.8,
            "reasoning_format": "none",
        },
    ),
    ("deepseek", {"thinking": {"type": "enabled"}, "logprobs": True}),
    (
        "deepseek",
        {
            "messages": [
                *_HI,
                {"role": "assistant", "content": "3", "reasoning_content": "Hm."},
                {"role": "user", "content": "Again"},
            ]
        },
    ),
    (
        "perplexity",
        {
            "search_domain_filter": ["example.org"],
            "search_recency_filter": "week",
            "return_images": True,
            "return_related_questions": True,
            "search_mode": "academic",
            "web_search_options": {"search_context_size": "high"},
            "reasoning_effort": "high",
        },
    ),
    (
        "mistral",
        {
            "safe_prompt": True,
            "prompt_mode": "reasoning",
            "random_seed": 3,
            "prediction": {"type": "content", "content": "x"},
            "document_image_limit": 2,
        },
    ),
    (
        "mistral",
        {
            "messages": [
                *_HI,
                {
                    "role": "assistant",
                    "content": [
                        {
                            "type": "thinking",
                            "thinking": [{"type": "text", "text": "Hm."}],
                        },
                        {"type": "text", "text": "3"},
                    ],
                },
                {
                    "role": "user",
                    "content": [
                        {"type": "document_url", "document_url": "https://x.org/a.pdf"}
                    ],
                },
            ]
        },
    ),
    (
        "mistral",
        {"messages": [*_HI, {"role": "assistant", "content": "A", "prefix": True}]},
    ),
    (
        "groq",
        {
            "reasoning_format": "parsed",
            "include_reasoning": True,
            "search_settings": {"country": "no"},
            "documents": [{"source": {"type": "text", "text": "x"}}],
            "citation_options": "enabled",
            "compound_custom": {"models": {"answering_model": "x"}},
            "disable_tool_validation": True,
        },
    ),
    ("xai", {"search_parameters": {"mode": "auto"}, "deferred": True}),
    (
        "openai_compatible",
        {
            "messages": [
                *_HI,
                {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [
                        {
                            **_CALL,
                            "extra_content": {"google": {"thought_signature": "c2ln"}},
                        }
                    ],
                },
                {"role": "tool", "tool_call_id": "call_1", "content": "3"},
            ],
            "extra_body": {"google": {"thinking_config": {"include_thoughts": True}}},
        },
    ),
]

#: The rest of what the hosts' own references list, a body for each host.
CHAT += [
    (
        "openrouter",
        {
            "top_k": 5,
            "top_a": 0.2,
            "min_p": 0.1,
            "repetition_penalty": 1.1,
            "logit_bias": {"7": -1},
            "logprobs": True,
            "top_logprobs": 3,
            "structured_outputs": True,
            "reasoning": {"effort": "high", "enabled": True, "exclude": True},
            "plugins": [
                {"id": "file-parser", "pdf": {"engine": "mistral-ocr"}},
                {"id": "response-healing"},
            ],
            "provider": {
                "only": ["azure"],
                "ignore": ["x"],
                "quantizations": ["fp8"],
                "sort": "throughput",
                "max_price": {"prompt": 1},
                "require_parameters": True,
                "allow_fallbacks": False,
                "enforce_distillable_text": True,
            },
            "preset": "mine",
            "session_id": "s",
            "trace": {"trace_id": "t"},
            "user": "me",
            "modalities": ["image", "text"],
            "image_config": {"aspect_ratio": "16:9"},
            "cache_control": {"type": "ephemeral"},
            "verbosity": "low",
            "debug": {"echo_upstream_body": True},
            "stream": True,
        },
    ),
    (
        "vllm",
        {
            "min_tokens": 1,
            "skip_special_tokens": False,
            "spaces_between_special_tokens": False,
            "include_stop_str_in_output": True,
            "truncate_prompt_tokens": 100,
            "allowed_token_ids": [1, 2],
            "bad_words": ["x"],
            "echo": True,
            "add_special_tokens": False,
            "continue_final_message": False,
            "documents": [{"title": "a", "text": "b"}],
            "chat_template": "{{ messages }}",
            "mm_processor_kwargs": {"num_crops": 4},
            "guided_regex": "a+",
            "guided_choice": ["a"],
            "guided_grammar": "root ::= x",
            "guided_decoding_backend": "xgrammar",
            "return_tokens_as_token_ids": True,
            "return_token_ids": True,
            "request_id": "r",
            "cache_salt": "s",
            "kv_transfer_params": {"a": 1},
            "vllm_xargs": {"a": 1},
            "include_reasoning": True,
            "reasoning_effort": "high",
            "logits_processors": [],
        },
    ),
    (
        "vllm",
        {
            "stream": True,
            "stream_options": {"include_usage": True, "continuous_usage_stats": True},
            "thinking_token_budget": 50,
        },
    ),
    (
        "llamacpp",
        {
            "dynatemp_range": 0.1,
            "dynatemp_exponent": 1.0,
            "top_k": 40,
            "top_n_sigma": 1.0,
            "min_p": 0.05,
            "n_predict": 20,
            "n_indent": 0,
            "n_keep": 1,
            "xtc_probability": 0.1,
            "xtc_threshold": 0.1,
            "repeat_penalty": 1.1,
            "repeat_last_n": 64,
            "dry_base": 1.7,
            "dry_allowed_length": 2,
            "dry_penalty_last_n": -1,
            "dry_sequence_breakers": ["\n"],
            "mirostat_tau": 5.0,
            "mirostat_eta": 0.1,
            "json_schema": SCHEMA,
            "ignore_eos": True,
            "logit_bias": [["x", False]],
            "min_keep": 1,
            "t_max_predict_ms": 9000,
            "return_tokens": True,
            "post_sampling_probs": True,
            "timings_per_token": True,
            "response_fields": ["content"],
            "lora": [{"id": 0, "scale": 0.5}],
            "chat_template_kwargs": {"enable_thinking": False},
            "thinking_forced_open": False,
            "parse_tool_calls": True,
            "parallel_tool_calls": True,
            "response_format": {"type": "json_object", "schema": SCHEMA},
        },
    ),
    (
        "deepseek",
        {
            "thinking": {"type": "disabled"},
            "reasoning_effort": "max",
            "user_id": "u",
            "top_logprobs": 4,
            "stop": ["x"],
            "response_format": {"type": "json_object"},
            "tools": [_TOOL],
            "messages": [*_HI, {"role": "assistant", "content": "{", "prefix": True}],
        },
    ),
    (
        "perplexity",
        {
            "search_after_date_filter": "3/1/2026",
            "search_before_date_filter": "3/5/2026",
            "last_updated_after_filter": "3/1/2026",
            "last_updated_before_filter": "3/5/2026",
            "search_language_filter": ["en"],
            "image_domain_filter": ["-x.org"],
            "image_format_filter": ["png"],
            "disable_search": False,
            "enable_search_classifier": True,
            "language_preference": "en",
            "media_response": {"overrides": {"return_videos": True}},
            "stream_mode": "concise",
            "top_k": 0,
            "web_search_options": {
                "search_type": "auto",
                "user_location": {"country": "NO"},
                "image_results_enhanced_relevance": True,
            },
        },
    ),
    (
        "mistral",
        {
            "n": 2,
            "presence_penalty": 0.1,
            "frequency_penalty": 0.1,
            "metadata": {"a": "b"},
            "document_page_limit": 3,
            "guardrails": [{"block_on_error": True}],
            "prompt_cache_key": "k",
            "reasoning_effort": "high",
            "response_format": {"type": "json_schema", "json_schema": _FORM},
            "tool_choice": "any",
            "tools": [_TOOL],
            "stop": ["x"],
        },
    ),
    (
        "groq",
        {
            "reasoning_effort": "none",
            "service_tier": "flex",
            "include_domains": ["x.org"],
            "exclude_domains": ["y.org"],
            "metadata": {"a": "b"},
            "user": "u",
            "seed": 3,
            "stop": ["x"],
            "parallel_tool_calls": False,
            "tools": [_TOOL, {"type": "browser_search"}],
            "stream": True,
        },
    ),
]

_5M = {"cache_control": {"type": "ephemeral"}}
_1H = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
_LOOK = {"name": "look", "description": "Look.", "input_schema": SCHEMA}


def _turns(*blocks: dict[str, Any], role: str = "user") -> list[dict[str, Any]]:
    return [{"role": role, "content": list(blocks)}]


_TEXT = {"type": "text", "text": "Hi"}
MESSAGES: list[dict[str, Any]] = [
    {
        "system": [{**_TEXT, **_1H}, {"type": "text", "text": "More.", **_5M}],
        "messages": _turns({**_TEXT, **_5M}),
        "tools": [{**_LOOK, **_1H}],
    },
    {"system": "Plain.", "cache_control": {"type": "ephemeral"}},
    {"messages": [*_HI, {"role": "assistant", "content": "{"}]},
    {"stop_sequences": ["END", "\n\n"], "top_k": 5},
    {"temperature": 0.3, "top_p": 0.9},
    {
        "context_management": {
            "edits": [{"type": "clear_tool_uses_20250919", "keep": {"value": 3}}]
        },
        "betas": ["context-management-2025-06-27"],
    },
    {"thinking": {"type": "enabled", "budget_tokens": 2048}, "max_tokens": 4096},
    {"thinking": {"type": "adaptive", "display": "summarized"}},
    {
        "output_config": {
            "effort": "max",
            "format": {"type": "json_schema", "schema": SCHEMA},
        }
    },
    {"service_tier": "standard_only", "inference_geo": "eu"},
    {"container": "container_1", "metadata": {"user_id": "u"}},
    {"container": {"skills": [{"type": "anthropic", "skill_id": "pdf"}]}},
    {"speed": "fast", "betas": ["fast-mode-2026-02-01"]},
    {
        "mcp_servers": [{"type": "url", "url": "https://x.org", "name": "x"}],
        "tools": [{"type": "mcp_toolset", "mcp_server_name": "x"}],
    },
    {
        "messages": _turns(
            {
                "type": "document",
                "source": {"type": "text", "media_type": "text/plain", "data": "Sky."},
                "title": "Facts",
                "context": "From a book.",
                "citations": {"enabled": True},
                **_5M,
            },
            _TEXT,
        )
    },
    {
        "messages": _turns(
            {
                "type": "document",
                "source": {
                    "type": "content",
                    "content": [{"type": "text", "text": "Sky."}],
                },
                "citations": {"enabled": True},
            }
        )
    },
    {
        "messages": _turns(
            {"type": "document", "source": {"type": "file", "file_id": "file_1"}},
            {"type": "image", "source": {"type": "file", "file_id": "file_2"}},
            {"type": "container_upload", "file_id": "file_3"},
        ),
        "betas": ["files-api-2025-04-14"],
    },
    {
        "messages": _turns(
            {
                "type": "search_result",
                "source": "https://x.org",
                "title": "X",
                "content": [{"type": "text", "text": "Sky."}],
                "citations": {"enabled": True},
            }
        )
    },
    {
        "messages": [
            *_HI,
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"},
                    {"type": "redacted_thinking", "data": "c2Vh"},
                    {"type": "text", "text": "I look."},
                    {
                        "type": "tool_use",
                        "id": "toolu_1",
                        "name": "look",
                        "input": {"city": "Oslo"},
                        "caller": {"type": "direct"},
                    },
                    {
                        "type": "tool_use",
                        "id": "toolu_2",
                        "name": "look",
                        "input": {"city": "Rome"},
                    },
                ],
            },
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "toolu_1",
                        "is_error": True,
                        "content": [
                            {"type": "text", "text": "No."},
                            {
                                "type": "image",
                                "source": {
                                    "type": "base64",
                                    "media_type": "image/png",
                                    "data": PNG,
                                },
                            },
                            {"type": "tool_reference", "tool_name": "other"},
                        ],
                        **_5M,
                    },
                    {"type": "tool_result", "tool_use_id": "toolu_2"},
                ],
            },
        ],
        "tools": [_LOOK],
        "tool_choice": {"type": "auto", "disable_parallel_tool_use": True},
    },
    {
        "messages": [
            *_HI,
            {
                "role": "assistant",
                "content": [
                    {
                        "type": "server_tool_use",
                        "id": "srvtoolu_1",
                        "name": "web_search",
                        "input": {"query": "x"},
                    },
                    {
                        "type": "web_search_tool_result",
                        "tool_use_id": "srvtoolu_1",
                        "content": [],
                    },
                    {
                        "type": "text",
                        "text": "Found.",
                        "citations": [
                            {
                                "type": "web_search_result_location",
                                "url": "https://x.org",
                                "title": "X",
                                "encrypted_index": "aW4=",
                                "cited_text": "x",
                            }
                        ],
                    },
                ],
            },
            {"role": "user", "content": "More"},
        ],
        "tools": [
            {"type": "web_search_20250305", "name": "web_search", "max_uses": 3},
            {"type": "code_execution_20250825", "name": "code_execution"},
            {"type": "memory_20250818", "name": "memory"},
            {"type": "tool_search_tool_regex_20251119", "name": "tool_search"},
            {**_LOOK, "defer_loading": True, "input_examples": [{"city": "Oslo"}]},
            {**_LOOK, "name": "fine", "eager_input_streaming": True, "strict": True},
        ],
    },
    {
        "messages": [
            *_HI,
            {"role": "system", "content": "Now in French."},
            {"role": "user", "content": "Again"},
        ]
    },
    {"fallbacks": [{"model": "claude-haiku-4-5"}]},
    {"tools": [{"type": "new_tool_20270101", "name": "new"}]},
]

_INPUT = [{"role": "user", "content": [{"type": "input_text", "text": "Hi"}]}]
RESPONSES: list[dict[str, Any]] = [
    {"input": "Hi", "instructions": "Be brief."},
    {"include": ["reasoning.encrypted_content", "message.output_text.logprobs"]},
    {"include": ["file_search_call.results"], "top_logprobs": 3},
    {"truncation": "auto", "max_output_tokens": 50, "max_tool_calls": 2},
    {"context_management": [{"type": "compaction", "compact_threshold": 9000}]},
    {"prompt": {"id": "pmpt_1", "version": "2", "variables": {"a": "b"}}},
    {"text": {"format": {"type": "json_schema", **_FORM}, "verbosity": "low"}},
    {"reasoning": {"effort": "minimal", "summary": "detailed", "mode": "x"}},
    {"prompt_cache_key": "k", "prompt_cache_retention": "24h", "user": "me"},
    {"safety_identifier": "u", "metadata": {"a": "b"}, "service_tier": "flex"},
    {"stream_options": {"include_obfuscation": False}},
    {
        "input": [
            *_INPUT,
            {
                "type": "reasoning",
                "id": "rs_68af4030baa48193b0b43b4c2a176a1a0e6967589f080e78",
                "summary": [{"type": "summary_text", "text": "Hm."}],
                "encrypted_content": "gAAAA",
            },
            {
                "type": "function_call",
                "id": "fc_68af40337e58819392e935fb404414d005b6967589f080e7",
                "call_id": "call_1",
                "name": "look",
                "arguments": '{"city": "Oslo"}',
                "status": "completed",
            },
            {
                "type": "function_call_output",
                "call_id": "call_1",
                "output": [
                    {"type": "input_text", "text": "3"},
                    {
                        "type": "input_image",
                        "image_url": f"data:image/png;base64,{PNG}",
                        "detail": "original",
                    },
                ],
            },
        ],
        "tools": [{"type": "function", "name": "look", "parameters": SCHEMA}],
        "tool_choice": {
            "type": "allowed_tools",
            "mode": "auto",
            "tools": [{"type": "function", "name": "look"}],
        },
    },
    {
        "input": [
            *_INPUT,
            {
                "type": "custom_tool_call",
                "call_id": "call_2",
                "name": "patch",
                "input": "*** Begin",
            },
            {"type": "custom_tool_call_output", "call_id": "call_2", "output": "ok"},
        ],
        "tools": [
            {
                "type": "custom",
                "name": "patch",
                "format": {"type": "grammar", "syntax": "lark", "definition": "s: A"},
            }
        ],
    },
    {
        "tools": [
            {"type": "web_search", "filters": {"allowed_domains": ["x.org"]}},
            {"type": "code_interpreter", "container": {"type": "auto"}},
            {"type": "image_generation", "partial_images": 2},
            {"type": "mcp", "server_label": "x", "server_url": "https://x.org"},
            {"type": "file_search", "vector_store_ids": ["vs_1"]},
            {"type": "shell"},
            {"type": "apply_patch"},
            {"type": "tool_search"},
            {"type": "newer_than_this_server", "level": 3},
            {
                "type": "namespace",
                "name": "crm",
                "tools": [{"type": "function", "name": "f", "defer_loading": True}],
            },
        ],
        "parallel_tool_calls": False,
    },
    {
        "input": [
            {"role": "developer", "content": "Be brief."},
            *_INPUT,
            {
                "role": "assistant",
                "content": [{"type": "output_text", "text": "Hello"}],
                "phase": "commentary",
            },
            {"role": "system", "content": "Now in French."},
            {
                "role": "user",
                "content": [
                    {"type": "input_file", "file_id": "file-1"},
                    {"type": "input_file", "file_url": "https://x.org/a.pdf"},
                    {"type": "input_image", "file_id": "file-2", "detail": "low"},
                ],
            },
        ]
    },
    {
        "input": [
            *_INPUT,
            {
                "type": "local_shell_call",
                "id": "lsh_1",
                "call_id": "call_3",
                "action": {"type": "exec", "command": ["ls"]},
                "status": "completed",
            },
            {"type": "local_shell_call_output", "id": "call_3", "output": "{}"},
            {"type": "compaction", "encrypted_content": "gAAA"},
        ]
    },
    {"moderation": {"mode": "auto"}, "temperature": 0.5, "top_p": 0.5},
]
