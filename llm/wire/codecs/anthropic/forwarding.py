"""A client's Messages body, as Anthropic takes it.

In: the client's own JSON, whose history may have blocks that this server made from
another host's answer. Out: the same without them: thinking without a signature,
or with one of this server, citations without an index, and ids that Anthropic refuses.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import partial
from typing import Any

from llm.wire.forwarding.codec import change_objects
from llm.wire.forwarding.sealed_text import is_sealed
from llm.wire.items import is_portable_call_id

MIN_BUDGET = 1024  # tokens
#: The ids of searches at other hosts begin so in answers of this server.
OUR_SEARCH = "srvtoolu_parley_"
_THOUGHTS = ("redacted_thinking", "thinking")


def fit_body(body: dict[str, Any]) -> dict[str, Any]:
    """Change `body` in place, and none of its values."""
    body.pop("betas", None)  # a header
    if "messages" in body:
        body["messages"] = change_objects(body["messages"], _fit_message)
    return body


def fit_default_thinking(body: dict[str, Any], *, can_force: bool) -> dict[str, Any]:
    """Change the `thinking` that staff have set, in place, to what Anthropic takes
    beside the client's own fields; without any, the model does not think.

    `can_force`: whether the model can think and be forced to call a tool.
    """
    thinking = body.get("thinking")
    if not isinstance(thinking, dict) or thinking.get("type") == "disabled":
        return body
    budget = thinking.get("budget_tokens")
    if _samples(body) or (budget and not _can_begin_by_thinking(body, can_force)):
        del body["thinking"]
    elif budget:
        most = body["max_tokens"] - MIN_BUDGET
        if most < MIN_BUDGET:
            del body["thinking"]
        else:
            body["thinking"] = {**thinking, "budget_tokens": min(budget, most)}
    return body


def _samples(body: Mapping[str, Any]) -> bool:
    others = (body.get("top_p"), body.get("top_k"))
    return body.get("temperature") not in (None, 1) or others != (None, None)


def _can_begin_by_thinking(body: Mapping[str, Any], can_force: bool) -> bool:
    if not isinstance(body.get("max_tokens"), int):
        return False
    choice = body.get("tool_choice")
    kind = choice.get("type") if isinstance(choice, dict) else None
    if kind in ("any", "tool") and not can_force:
        return False
    begun: list[dict[str, Any]] = []  # what the model has said in this turn
    messages = body.get("messages")
    for message in messages if isinstance(messages, list) else ():
        if _is_question(message):
            begun = []
        elif isinstance(message, dict) and message.get("role") == "assistant":
            begun = begun or _blocks(message)
    return not begun or begun[0].get("type") in _THOUGHTS


def has_lost_thinking(body: Any) -> bool:
    """Whether `thinking` with a budget is on, and the turn that goes on has thinking
    that Anthropic did not write: it would refuse both the thinking and its lack."""
    thinking, messages = body.get("thinking"), body.get("messages")
    if not isinstance(thinking, dict) or thinking.get("type") != "enabled":
        return False
    message: Any
    for message in reversed(messages if isinstance(messages, list) else ()):
        if not isinstance(message, dict):
            return False
        blocks = _blocks(message)
        if message.get("role") == "assistant":
            if any(_is_foreign_thinking(block) for block in blocks):
                return True
        elif any(block.get("type") != "tool_result" for block in blocks):
            return False
    return False


def without_thinking(
    body: Mapping[str, Any], number: int, *, and_later: bool = False
) -> dict[str, Any] | None:
    """`body` without the thinking of the turn that message `number` belongs to, as
    Anthropic counts them: one model has written all of it.

    `and_later`: also without that of later turns, but for one that still goes on. A
    turn that goes on with a budget would have to begin with a thought, so the model
    goes on without thinking. None if there is nothing to leave out.
    """
    messages = change_objects(body.get("messages"), _fit_message)
    if not isinstance(messages, list) or number >= len(messages):
        return None
    begin, end = _find_turn(messages, number)
    goes_on = end == len(messages)
    if and_later:
        end = max(end, _find_turn(messages, len(messages) - 1)[0])
    turns = change_objects(messages[begin:end], _without_thoughts)
    rest = [*messages[:begin], *turns, *messages[end:]]
    if rest == messages:
        return None
    less = {**body, "messages": rest}
    return _stop_thinking(less) if goes_on and _has_budget(body) else less


def _find_turn(messages: list[Any], number: int) -> tuple[int, int]:
    """Where the turn of message `number` begins and ends."""
    begin = end = number
    while begin > 0 and not _is_question(messages[begin]):
        begin -= 1
    while end < len(messages) and (end == number or not _is_question(messages[end])):
        end += 1
    return begin, end


def _stop_thinking(body: dict[str, Any]) -> dict[str, Any]:
    less = {name: value for name, value in body.items() if name != "thinking"}
    management = body.get("context_management")
    if isinstance(management, dict) and isinstance(management.get("edits"), list):
        edits = change_objects(management["edits"], _unless_for_thinking)
        less["context_management"] = {**management, "edits": edits}
    return less


def _unless_for_thinking(edit: dict[str, Any]) -> dict[str, Any] | None:
    """Anthropic refuses to clear thinking where there is none."""
    return None if "thinking" in str(edit.get("type")) else edit


def _has_budget(body: Mapping[str, Any]) -> bool:
    thinking = body.get("thinking")
    return isinstance(thinking, dict) and thinking.get("type") == "enabled"


def _is_question(message: Any) -> bool:
    """Whether a user says something, rather than giving results of tools."""
    if not isinstance(message, dict) or message.get("role") == "assistant":
        return False
    return any(block.get("type") != "tool_result" for block in _blocks(message))


def _without_thoughts(message: dict[str, Any]) -> dict[str, Any] | None:
    content = message.get("content")
    if message.get("role") != "assistant" or not isinstance(content, list):
        return message
    rest = change_objects(content, _unless_thought)
    return {**message, "content": rest} if rest else None


def _unless_thought(block: dict[str, Any]) -> dict[str, Any] | None:
    return None if block.get("type") in _THOUGHTS else block


def _blocks(message: dict[str, Any]) -> list[dict[str, Any]]:
    content = message.get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    parts = content if isinstance(content, list) else ()
    return [block for block in parts if isinstance(block, dict)]


def _is_foreign_thinking(block: dict[str, Any]) -> bool:
    match block.get("type"):
        case "thinking":
            signature = block.get("signature")
            return not signature or is_sealed(signature)
        case "redacted_thinking":
            return is_sealed(block.get("data"))
    return False


def _fit_message(message: dict[str, Any]) -> dict[str, Any] | None:
    content = message.get("content")
    is_answer = message.get("role") == "assistant"
    fitted = change_objects(content, partial(_fit_block, is_answer=is_answer))
    if fitted is content:
        return message
    return {**message, "content": fitted} if fitted else None


def _fit_block(block: dict[str, Any], *, is_answer: bool) -> dict[str, Any] | None:
    changed: dict[str, Any] = {}
    match block.get("type"):
        case "thinking" | "redacted_thinking" if is_answer and _is_foreign_thinking(
            block
        ):
            return None
        case "text" if is_answer and block.get("citations"):
            cited = change_objects(block["citations"], _fit_citation)
            if cited is not block["citations"]:
                changed["citations"] = cited or None
        case "server_tool_use" if str(block.get("id")).startswith(OUR_SEARCH):
            return None
        case "web_search_tool_result" if str(block.get("tool_use_id")).startswith(
            OUR_SEARCH
        ):
            return None
        case "tool_use" if is_answer:
            changed |= _fit_id(block, "id") | _fit_input(block)
        case "tool_result":
            changed |= _fit_id(block, "tool_use_id")
    if not changed:
        return block
    merged = {**block, **changed}
    return {name: value for name, value in merged.items() if value is not None}


def _fit_citation(citation: dict[str, Any]) -> dict[str, Any] | None:
    return None if citation.get("encrypted_index") == "" else citation


def _fit_input(block: dict[str, Any]) -> dict[str, Any]:
    """Another model may have written arguments that are no object."""
    value = block.get("input")
    return (
        {} if value is None or isinstance(value, dict) else {"input": {"_raw": value}}
    )


def _fit_id(block: dict[str, Any], name: str) -> dict[str, Any]:
    id = block.get(name)
    if not isinstance(id, str) or is_portable_call_id(id):
        return {}
    digest = hashlib.sha256(id.encode(errors="replace")).hexdigest()
    return {name: f"toolu_{digest[:24]}"}
