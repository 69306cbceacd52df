"""Encoder of canonical items as the `system` and `messages` of a request.

Neighbouring items of the assistant become one message, and so do those of the user:
first the outputs of calls, all of them and in the calls' order, then the rest. Items
with a proof of this issuer are sent back as their original blocks. For other items text
and calls are rebuilt; thinking and the receipts of hosted tools are left out.

Source: https://platform.claude.com/docs/en/api/messages
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from typing import Any

from llm.errors import BadRequest
from llm.wire.codecs.anthropic.content_parts import (
    Block,
    blocks_of,
    plain_text,
    text_block,
)
from llm.wire.codecs.call_order import NOT_RUN, pair_calls
from llm.wire.hosted_tools import RECEIPTS, compaction_message, screenshot_of
from llm.wire.item_prefix_cache import SENTINEL, EncodedPrefix, encode_messages
from llm.wire.items import (
    Item,
    call_ids,
    is_portable_call_id,
    proof_for,
    text_of,
)
from llm.wire.request import Request

Message = dict[str, Any]

CACHED = {"cache_control": {"type": "ephemeral"}}

_THOUGHTS = frozenset({"thinking", "redacted_thinking"})
_HOSTED_CALLS = frozenset({"server_tool_use", "mcp_tool_use"})
_MAX_NAME = 64  # characters
_NAME = re.compile(rf"[a-zA-Z0-9_-]{{1,{_MAX_NAME}}}")
_NO_NAME = re.compile(r"[^a-zA-Z0-9_-]")
_OPENING = "(The conversation begins.)"
_GO_ON = "Go on."


def wire_name(name: str) -> str:
    """A tool's name in the characters that the API allows, in the history as well.

    A hash keeps names apart that are spelled alike then. `renamed_tools` in `tools` is
    the way back.
    """
    if _NAME.fullmatch(name):
        return name
    digest = hashlib.sha256(name.encode(errors="replace")).hexdigest()[:8]
    return f"{_NO_NAME.sub('_', name)[: _MAX_NAME - 9]}_{digest}"


class MessagesInput:
    """`system`, `messages`, the `container` to continue in, and `degraded` options."""

    def __init__(self, request: Request, *, system_messages: bool) -> None:
        self.system: list[Block] = []
        self.messages: list[Message] = []
        self.container: str | None = None
        self.degraded: list[str] = []
        self.is_cut = False  # a hosted call without a result was left out
        self._request = request
        self._system_messages = system_messages
        self._assistant: list[Block] = []
        self._results: list[Block] = []
        self._user: list[Block] = []
        self._notes: list[str] = []  # system messages that wait for the end of the turn
        self._uses: dict[str, Block] = {}  # tool_use blocks by our call id
        self._taken: set[str] = set()  # call ids that the messages use
        self._repeats: dict[str, int] = {}  # next numbers of ids that are taken
        self._unanswered: dict[str, Block] = {}  # the last assistant's calls, by id
        if request.instructions.strip():
            self.system.append(text_block(request.instructions))
        called, self._answered = call_ids(request.items)
        items = request.items
        for item in pair_calls(items, self._answered) if called else items:
            self._add(item)
        self._finish()

    def ids(self) -> set[str]:
        """Ids of calls, and the ids by which results refer to them."""
        blocks = [block for message in self.messages for block in message["content"]]
        named = [block.get(name) for block in blocks for name in ("id", "tool_use_id")]
        return {id for id in named if id}

    def cache(self, *, is_single: bool) -> None:
        """Mark the end of the prefix that later requests will repeat."""
        if self.system:
            self.system[-1] = {**self.system[-1], **CACHED}
        if is_single and not self._request.tools:
            return  # a single question is not repeated
        for message in reversed(self.messages):
            if message["role"] == "user":
                message["content"][-1] = {**message["content"][-1], **CACHED}
                return

    # Items

    def _add(self, item: Item) -> None:
        blocks = self._proof(item)
        match item.get("type", "message"):
            case "message":
                self._message(item, blocks)
            case "reasoning":
                self._add_assistant(blocks)
            case "custom_tool_call" if item["call_id"] not in self._answered:
                pass  # a call of xAI's own tool
            case "function_call" | "custom_tool_call":
                self._add_assistant(self._call(item, blocks))
            case "computer_call" if _calls(blocks):
                self._add_assistant(self._call(item, blocks))
            case "function_call_output" | "custom_tool_call_output":
                self._output(item, item["output"])
            case "computer_call_output":
                self._output(item, [screenshot_of(item)])
            case _ if blocks:
                self._add_assistant(blocks)
            case "compaction":
                if (summary := compaction_message(item)) is not None:
                    self._message(summary, [])
            case str(kind) if (
                kind in RECEIPTS
                or kind.startswith("parley:")
                or "provider_data" in item
            ):
                pass
            case kind:
                raise BadRequest(
                    f"Items of the type {kind!r} cannot be sent to this provider.",
                    param="input",
                )

    def _proof(self, item: Item) -> list[Block]:
        raw = proof_for(self._request.issuer, item)
        if not isinstance(raw, dict):
            return []
        self.container = raw.get("container") or self.container
        return list(raw.get("content") or ())

    def _message(self, item: Item, blocks: list[Block]) -> None:
        content = item["content"]
        match item["role"]:
            case "assistant":
                self._add_assistant(blocks or blocks_of(plain_text(content)))
            case "system" | "developer":
                if (text := plain_text(content)).strip():
                    self._add_instruction(text)
            case _:
                self._add_user(content)

    def _add_user(self, content: Any) -> None:
        if blocks := blocks_of(content):
            self._end_assistant()
            self._user += blocks
            self._note_detail(content)

    def _note_detail(self, content: Any) -> None:
        """Note that Anthropic ignores the `detail` of images."""
        parts = () if isinstance(content, str) else content
        if any(part.get("detail") not in (None, "auto") for part in parts):
            self.degraded.append("input")

    def _add_instruction(self, text: str) -> None:
        """Add an instruction: at the beginning to the system prompt, later as a system
        message if the model supports it, else as user text."""
        if not (self.messages or self._assistant or self._user or self._results):
            self.system.append(text_block(text))
            return
        self._end_assistant()
        if self._system_messages:
            self._notes.append(text)
        else:
            self._user.append(_wrap_system(text))
            self.degraded.append("input")

    # Calls

    def _call(self, item: Item, blocks: list[Block]) -> list[Block]:
        blocks = blocks or [_rebuild_call(item)]
        at = next(n for n, block in enumerate(blocks) if block["type"] == "tool_use")
        id = self._free_id(blocks[at]["id"])
        if id != blocks[at]["id"]:
            blocks[at] = {**blocks[at], "id": id}
        self._taken.add(id)
        self._uses[item["call_id"]] = blocks[at]
        return blocks

    def _free_id(self, id: str) -> str:
        """`id`, or a new one if it is invalid or in use: some hosts restart their
        numbering with every answer."""
        wanted, count = id, self._repeats.get(id, 0)
        while id in self._taken or not is_portable_call_id(id):
            digest = hashlib.sha256(f"{wanted} {count}".encode(errors="replace"))
            id, count = f"toolu_{digest.hexdigest()[:24]}", count + 1
        if count:
            self._repeats[wanted] = count
        return id

    def _output(self, item: Item, content: str | list[dict[str, Any]]) -> None:
        blocks = blocks_of(content)
        self._note_detail(content)
        self._end_assistant()
        use = self._uses.get(item["call_id"])
        if use is None or use["id"] not in self._unanswered:
            self._user += blocks  # its call was left out; the result is still useful
            return
        self._results.append(_result(use, blocks))

    # Turns

    def _add_assistant(self, blocks: Iterable[Block]) -> None:
        """Add the assistant's blocks, without empty text, which would be refused."""
        if nonempty := [block for block in blocks if not _is_empty(block)]:
            self._end_user()
            self._assistant += nonempty

    def _end_assistant(self) -> None:
        content, self._assistant = self._assistant, []
        while content and content[-1]["type"] in _THOUGHTS:
            content.pop()  # thinking without an answer; a message must not end with it
        if not content:
            return
        if not self.messages:
            self.messages.append({"role": "user", "content": [text_block(_OPENING)]})
        self.messages.append({"role": "assistant", "content": content})
        self._unanswered = {b["id"]: b for b in content if b["type"] == "tool_use"}

    def _end_user(self) -> None:
        content = [*self._all_results(), *self._user]
        notes, self._notes, self._user = self._notes, [], []
        if notes and not content:  # a system message must follow a user message
            content, notes = [_wrap_system("\n\n".join(notes))], []
        if content:
            self.messages.append({"role": "user", "content": content})
        if notes:
            note_blocks = [text_block(note) for note in notes]
            self.messages.append({"role": "system", "content": note_blocks})

    def _all_results(self) -> list[Block]:
        """A result for each call, in the calls' order."""
        by_id = {result["tool_use_id"]: result for result in self._results}
        results = [
            by_id.get(id) or _missing_result(u) for id, u in self._unanswered.items()
        ]
        self._results, self._unanswered = [], {}
        return results

    def _finish(self) -> None:
        self._end_assistant()
        self._end_user()
        self._drop_unresolved()
        if not self.messages:
            raise BadRequest("There is no message to answer.", param="input")
        last = self.messages[-1]
        if last["role"] == "assistant" and not _is_paused(last):
            self.messages.append({"role": "user", "content": [text_block(_GO_ON)]})

    def _drop_unresolved(self) -> None:
        """Remove hosted calls without a result where they would be refused: anywhere
        but in the last message, or before one that holds nothing but results of client
        tools."""
        resolved = {
            block["tool_use_id"]
            for message in self.messages
            if message["role"] == "assistant"
            for block in message["content"]
            if "tool_use_id" in block
        }
        for message, answer in zip(self.messages, self.messages[1:], strict=False):
            if message["role"] != "assistant" or _is_results(answer):
                continue
            whole = [
                block
                for block in message["content"]
                if block["type"] not in _HOSTED_CALLS or block["id"] in resolved
            ]
            self.is_cut |= len(whole) < len(message["content"])
            message["content"] = whole
        self.messages = [message for message in self.messages if message["content"]]


def encode_messages_prefix(
    request: Request, *, system_messages: bool
) -> EncodedPrefix | None:
    """The encoded prefix of the conversation.

    None if the `SENTINEL` would not be a message of its own, or a hosted call lacks a
    result that the next items may contain.
    """
    wire = MessagesInput(request, system_messages=system_messages)
    *messages, last = wire.messages
    if last["content"] != [text_block(text_of(SENTINEL))] or wire.is_cut:
        return None
    wire.messages = messages
    notes = frozenset(wire.degraded)
    return EncodedPrefix(
        encode_messages(messages), frozenset(wire.ids()), notes, wire.container or ""
    )


def _calls(blocks: list[Block]) -> bool:
    return any(block["type"] == "tool_use" for block in blocks)


def _rebuild_call(item: Item) -> Block:
    if item["type"] == "custom_tool_call":
        arguments: Any = {"input": item["input"]}
    else:
        arguments = _arguments(item["arguments"])
    return {
        "type": "tool_use",
        "id": item["call_id"],
        "name": wire_name(item["name"]),
        "input": arguments,
    }


def _arguments(text: str) -> dict[str, Any]:
    try:
        parsed = json.loads(text or "{}")
    except ValueError:
        parsed = None
    return parsed if isinstance(parsed, dict) else {"_raw": text}


def _result(use: Block, blocks: list[Block]) -> Block:
    result: Block = {"type": "tool_result", "tool_use_id": use["id"]}
    if blocks:  # an empty result has no content at all
        result["content"] = blocks
    first = blocks[0].get("text", "") if blocks else ""
    if first.startswith(("Error:", "ERROR:")):  # our marker of a failure
        result["is_error"] = True
    if toolset := use.get("toolset_name"):
        result["toolset_name"] = toolset
    return result


def _missing_result(use: Block) -> Block:
    return _result(use, [text_block(NOT_RUN)])


def _wrap_system(text: str) -> Block:
    return text_block(f"<system>\n{text}\n</system>")


def _is_empty(block: Block) -> bool:
    return block["type"] == "text" and not block["text"].strip()


def _is_results(message: Message) -> bool:
    return message["role"] == "user" and all(
        block["type"] == "tool_result" for block in message["content"]
    )


def _is_paused(message: Message) -> bool:
    """True if Anthropic's own tools were running when the answer ended."""
    kind = message["content"][-1]["type"]
    return kind in _HOSTED_CALLS or kind.endswith("_tool_result")
