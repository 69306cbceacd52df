"""Encoder of canonical items as the `messages` of Chat Completions.

Neighbouring items of the assistant become one message: its text, its calls and, for the
same issuer, its proofs. The outputs follow in the order of the calls. A tool message
can hold only text, so images of a tool are put into a user message after the last
output.

Source: https://platform.openai.com/docs/api-reference/chat/create
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import orjson

from llm.errors import BadRequest
from llm.wire.codecs.call_order import pair_calls
from llm.wire.codecs.feature_fallbacks import has_late_instructions
from llm.wire.codecs.file_data import (
    FileData,
    is_data_url,
    names_video,
    plain_audio,
    read_file,
    without_breaks,
)
from llm.wire.codecs.openai_chat.host_options import HostOptions
from llm.wire.codecs.openai_chat.reasoning import TEXT_FIELDS, join_pieces
from llm.wire.hosted_tools import RECEIPTS, compaction_message, screenshot_message
from llm.wire.item_prefix_cache import (
    EncodedPrefix,
    encode_messages,
    encode_prefix,
    without_prefix,
)
from llm.wire.items import Item, call_ids, is_portable_call_id, proof_for
from llm.wire.request import Request

Message = dict[str, Any]
Part = dict[str, Any]

_MAX_CALL_ID = 40  # characters, OpenAI's limit here; on Responses it is 64
_MEDIA = ("input_image", "input_file", "input_audio")
_BASE64 = re.compile(r"[A-Za-z0-9+/]{4}")


def messages(request: Request, codec: HostOptions) -> list[Message]:
    """Raises BadRequest for items that this host does not support."""
    if (
        earlier := encode_prefix(request, codec, partial(_encode_prefix, codec))
    ) is None:
        return _Writer(request, codec).all()
    new = _Writer(without_prefix(request), codec).all()
    begins = next(n for n, each in enumerate(new) if each["role"] == "user")
    return earlier.prepend_to(new, begins)


def _encode_prefix(codec: HostOptions, request: Request) -> EncodedPrefix | None:
    *messages, _ = _Writer(request, codec).all()
    # Merged system messages are moved to the front, so a prefix would not stay
    # unchanged.
    is_moved = codec.merge_system and has_late_instructions(request.items)
    return None if is_moved else EncodedPrefix(encode_messages(messages))


def wire_call_id(call_id: str, length: int | None = None) -> str:
    """`call_id` in a form that this host takes; the result is deterministic."""
    if length is not None:
        fits = len(call_id) == length and call_id.isalnum() and call_id.isascii()
        return call_id if fits else _digest(call_id)[:length]
    if is_portable_call_id(call_id) and len(call_id) <= _MAX_CALL_ID:
        return call_id
    return f"call_{_digest(call_id)[:24]}"


def _digest(call_id: str) -> str:
    return hashlib.sha256(call_id.encode(errors="replace")).hexdigest()


@dataclass(slots=True)
class _Assistant:
    """An assistant message under construction."""

    texts: list[str] = field(default_factory=list)
    calls: list[dict[str, Any]] = field(default_factory=list)
    proofs: dict[str, Any] = field(default_factory=dict)

    def prove(self, raw: Mapping[str, Any]) -> None:
        for name, value in raw.items():
            if name == "images":
                self.proofs[name] = [*self.proofs.get(name, ()), *value]
            elif isinstance(value, list):
                self.proofs[name] = join_pieces([*self.proofs.get(name, []), *value])
            elif name in TEXT_FIELDS and name in self.proofs:
                self.proofs[name] += value
            else:
                self.proofs[name] = value

    def message(self) -> Message | None:
        pictures = "images" in self.proofs
        if not self.texts and not self.calls and not pictures:
            return None  # reasoning without an answer
        content: Any = "\n\n".join(self.texts) or ("" if pictures else None)
        if not self.proofs and not self.calls:  # the usual case
            return {"role": "assistant", "content": content}
        message: Message = {"role": "assistant", "content": content}
        if self.proofs:
            message |= self.proofs
            if thinking := self.proofs.get("content"):  # Mistral's parts
                text_parts = [{"type": "text", "text": content}] if content else []
                message["content"] = [*thinking, *text_parts]
            else:
                message["content"] = content
        if self.calls:
            message["tool_calls"] = self.calls
        return message


class _Writer:
    def __init__(self, request: Request, codec: HostOptions) -> None:
        self._request = request
        self._codec = codec
        self._messages: list[Message] = []
        self._system: list[str] = []  # for hosts with one system message, in front
        self._assistant: _Assistant | None = None
        called, self._answered = call_ids(request.items)
        self._items = request.items
        if called:
            self._items = pair_calls(request.items, self._answered)
        self._must_think = _must_think(request, codec)
        self._order: dict[str, int] = {}  # position of each call that is being answered
        self._outputs: list[Message] = []
        self._pictures: list[Part] = []

    def all(self) -> list[Message]:
        if self._request.instructions:
            self.system(self._request.instructions)
        for item in self._items:
            self.item(item)
        return self.finish()

    def item(self, item: Item) -> None:
        match item.get("type", "message"):
            case "message":
                self._message(item)
            case "reasoning" | "image_generation_call":
                if raw := self._proof(item):
                    self._turn().prove(raw)
            case "custom_tool_call" if item["call_id"] not in self._answered:
                pass  # a call of xAI's own tool
            case "function_call" | "custom_tool_call":
                self._turn().calls.append(self._call(item))
            case "function_call_output" | "custom_tool_call_output":
                self._output(item)
            case "computer_call_output":
                self._message(screenshot_message(item))
            case "compaction":
                if (summary := compaction_message(item)) is not None:
                    self._message(summary)
            case str(type) if (
                type in RECEIPTS
                or type.startswith("parley:")
                or "provider_data" in item
            ):
                pass
            case type:
                raise BadRequest(
                    f"Items of the type {type!r} cannot be sent to this provider.",
                    param="input",
                )

    def system(self, text: str) -> None:
        if self._codec.merge_system:
            self._system.append(text)
        else:
            self._messages.append({"role": self._codec.system_role, "content": text})

    def finish(self) -> list[Message]:
        self._end_turn()
        if not self._system:
            return self._messages
        front = {"role": self._codec.system_role, "content": "\n\n".join(self._system)}
        return [front, *self._messages]

    # The assistant

    def _turn(self) -> _Assistant:
        """The assistant message that the current item belongs to."""
        if self._outputs or self._pictures:
            self._end_turn()
        if self._assistant is None:
            self._assistant = _Assistant()
        return self._assistant

    def _end_assistant(self) -> None:
        turn, self._assistant = self._assistant, None
        if turn is None or (message := turn.message()) is None:
            return
        if self._must_think:
            message.setdefault("reasoning_content", "")
        self._messages.append(message)
        self._order = {call["id"]: n for n, call in enumerate(turn.calls)}

    def _end_turn(self) -> None:
        if self._assistant is not None:
            self._end_assistant()
        if not self._outputs and not self._pictures:
            self._order = {}
            return
        last = len(self._order)
        self._outputs.sort(
            key=lambda output: self._order.get(output["tool_call_id"], last)
        )
        self._messages += self._outputs
        if self._pictures:
            self._messages.append({"role": "user", "content": self._pictures})
        self._outputs, self._pictures, self._order = [], [], {}

    def _proof(self, item: Item) -> Mapping[str, Any]:
        raw = proof_for(self._request.issuer, item)
        return raw if isinstance(raw, Mapping) else {}

    def _call(self, item: Item) -> dict[str, Any]:
        id = wire_call_id(item["call_id"], self._codec.call_id_length)
        if item["type"] == "custom_tool_call":
            custom = {"name": item["name"], "input": item["input"]}
            return {"id": id, "type": "custom", "custom": custom}
        function = {"name": item["name"], "arguments": _arguments(item["arguments"])}
        call = {"id": id, "type": "function", "function": function}
        return {**call, **self._proof(item)} if "provider_data" in item else call

    # The others

    def _message(self, item: Item) -> None:
        role, content = item["role"], item["content"]
        if role == "assistant":
            turn = self._turn()
            if "provider_data" in item:
                turn.prove(self._proof(item))
            if text := self._text(content):
                turn.texts.append(text)
            return
        self._end_turn()
        if role in ("system", "developer"):
            self.system(self._text(content))
        else:
            self._messages.append({"role": "user", "content": self._content(content)})

    def _output(self, item: Item) -> None:
        self._end_assistant()
        output = item["output"]
        text = output if isinstance(output, str) else self._output_text(output)
        call_id = wire_call_id(item["call_id"], self._codec.call_id_length)
        self._outputs.append({"role": "tool", "tool_call_id": call_id, "content": text})

    def _output_text(self, parts: Sequence[Part]) -> str:
        """The text of an output; images follow later, and a label marks their
        position."""
        lines: list[str] = []
        for part in parts:
            converted = self._part(part)
            if converted["type"] == "text":
                lines.append(converted["text"])
                continue
            number = sum(p["type"] != "text" for p in self._pictures) + 1
            label = f"[{part['type'].removeprefix('input_')} {number} of the tools]"
            lines.append(f"{label} follows below.")
            self._pictures += [{"type": "text", "text": label}, converted]
        return "\n".join(lines)

    def _text(self, content: str | Sequence[Part]) -> str:
        if isinstance(content, str):
            return content
        if len(content) == 1:
            return _plain(content[0])
        gap = "\n\n" if any(part.get("refusal") for part in content) else ""
        return gap.join(filter(None, map(_plain, content)))

    def _content(self, content: str | Sequence[Part]) -> str | list[Part]:
        """A string if there is only text, because some hosts take nothing else."""
        if isinstance(content, str):
            return content
        if len(content) == 1 and content[0]["type"] not in _MEDIA:
            return _plain(content[0])  # the usual case
        parts = [self._part(part) for part in content]
        if all(part["type"] == "text" for part in parts):
            return "\n".join(part["text"] for part in parts)
        return parts

    def _part(self, part: Part) -> Part:
        match part["type"]:
            case "input_image":
                return self._image(part)
            case "input_file":
                return self._file(part)
            case "input_audio":
                audio = plain_audio(part["input_audio"])
                return {"type": "input_audio", "input_audio": audio}
            case _:
                return {"type": "text", "text": _plain(part)}

    def _image(self, part: Part) -> Part:
        url = part.get("image_url")
        if isinstance(url, Mapping):
            url = url.get("url")
        if not url:
            raise _cannot_send("an image by its file id; send the image itself")
        if not self._codec.image_urls and not is_data_url(url):
            raise _cannot_send("an image by its address; send the image itself")
        image = {"url": without_breaks(url) if is_data_url(url) else url}
        if (detail := part.get("detail")) and detail != "auto":
            image["detail"] = detail
        return {"type": "image_url", "image_url": image}

    def _file(self, part: Part) -> Part:
        name, data = part.get("filename") or "file", part.get("file_data") or ""
        if self._codec.files and part.get("file_id"):
            return {"type": "file", "file": {"file_id": part["file_id"]}}
        if not data and part.get("file_id"):
            raise _cannot_send("a file by its id; send the file itself")
        if not data and names_video(part) and (url := part.get("file_url")):
            return {"type": "video_url", "video_url": {"url": url}}
        file = read_file(data, name)
        if data and file.media_type.startswith("video/"):
            url = f"data:{file.media_type};base64,{file.encoded}"
            return {"type": "video_url", "video_url": {"url": url}}
        # Every host can read text.
        if data and (text := _text_file(file)) is not None:
            return {"type": "text", "text": f"{name}:\n\n{text}"}
        if self._codec.files and data:
            if is_data_url(data):
                data = without_breaks(data)
            elif _BASE64.match(data):
                data = f"data:{file.media_type};base64,{file.encoded}"
            return {"type": "file", "file": {"filename": name, "file_data": data}}
        raise _cannot_send(f"the file {name!r}; send its text")


def _must_think(request: Request, codec: HostOptions) -> bool:
    """DeepSeek refuses assistant messages without reasoning, even other models'; an
    empty string suffices."""
    effort = (request.reasoning or {}).get("effort")
    return codec.reasoning_echo == "reasoning_content" and effort != "none"


def _plain(part: Part) -> str:
    text = part.get("text")
    if isinstance(text, str):
        return text
    text = part.get("refusal") if text is None else text
    if not isinstance(text, str):
        raise _cannot_send(f"a part of the type {part.get('type')!r} in a message")
    return text


def _arguments(text: str) -> str:
    """Arguments as a valid JSON object, because strict chat templates parse them."""
    text = text or "{}"
    return text if _is_object(text) else json.dumps({"_raw": text})


def _is_object(text: str) -> bool:
    try:
        return isinstance(orjson.loads(text), dict)
    except orjson.JSONDecodeError:
        pass  # perhaps it has NaN, which chat templates can parse
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


def _text_file(file: FileData) -> str | None:
    """The text in a file of a text type; None for anything else."""
    return file.text() if file.is_text else None


def _cannot_send(what: str) -> BadRequest:
    return BadRequest(f"This provider does not accept {what}.", param="input")
