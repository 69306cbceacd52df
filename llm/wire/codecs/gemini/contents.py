"""Encoder of canonical items as the `contents` of generateContent.

Gemini's own answers are sent back part by part, unchanged. Other items are rebuilt,
without reasoning. The outputs of a round are one user content, in the order of the
calls; they name the function, so the names of calls are remembered.

Source: https://ai.google.dev/api/caching#Content
"""

from __future__ import annotations

import base64
import itertools
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from llm.errors import BadRequest
from llm.wire.codecs.call_order import pair_calls
from llm.wire.codecs.file_data import (
    FileData,
    is_data_url,
    media_type_of,
    plain_audio,
    read_file,
)
from llm.wire.codecs.gemini import model_capabilities
from llm.wire.codecs.gemini.original_parts import Part
from llm.wire.hosted_tools import RECEIPTS, compaction_message, screenshot_message
from llm.wire.item_prefix_cache import SENTINEL, EncodedPrefix, encode_messages
from llm.wire.items import (
    Item,
    call_ids,
    is_portable_call_id,
    proof_for,
    text_of,
)
from llm.wire.request import Request

Content = dict[str, Any]

#: The signature for calls that Gemini did not make: Google's documented placeholder
#: ("skip_thought_signature_validator") in base64.
NO_SIGNATURE = "c2tpcF90aG91Z2h0X3NpZ25hdHVyZV92YWxpZGF0b3I="
#: The first user message of a conversation that begins with the model.
_OPENING: Part = {"text": "…"}
#: Types of items that this API does not have.
_LEFT_OUT = RECEIPTS | {"reasoning"}
#: Text types that Gemini does not know, and that are sent as text/plain.
_TEXT = re.compile(r"application/(x-)?(json|xml|yaml|toml|javascript|sh)\b")
#: Media types allowed inside a function's output; other media follow after it.
_IN_OUTPUTS = frozenset(
    {"application/pdf", "image/jpeg", "image/png", "image/webp", "text/plain"}
)
_ERROR = "Error: "  # begins the output of a tool that failed


class Contents:
    """`contents`, and `system` with the instructions before the first message."""

    def __init__(self, request: Request) -> None:
        self.system: list[str] = [request.instructions] if request.instructions else []
        self.contents: list[Content] = []
        self.has_hosted_parts = (
            False  # parts of Google's own tools are among the contents
        )
        self._request = request
        self._version = model_capabilities.version(request.model)
        self._calls: dict[str, tuple[str, str, int]] = {}  # name, Gemini's id, position
        self._positions = itertools.count()
        self._outputs: list[tuple[int, Part, list[Part]]] = []
        called, self._answered = call_ids(request.items)
        items = request.items
        for item in pair_calls(items, self._answered) if called else items:
            self._item(item)
        self._finish()

    def _item(self, item: Item) -> None:
        raw, kind = proof_for(self._request.issuer, item), item.get("type", "message")
        if raw is not None:
            self._replay(kind, item, raw)
            return
        match kind:
            case "message":
                self._message(item)
            case "custom_tool_call" if item["call_id"] not in self._answered:
                pass  # a call of xAI's own tool
            case "function_call" | "custom_tool_call":
                self._rebuild_call(item)
            case "function_call_output" | "custom_tool_call_output":
                self._output(item)
            case "computer_call_output":
                self._message(screenshot_message(item))
            case "compaction":
                if (summary := compaction_message(item)) is not None:
                    self._message(summary)
            case str(type) if (
                type in _LEFT_OUT
                or type.startswith("parley:")
                or "provider_data" in item
            ):
                pass
            case type:
                raise BadRequest(
                    f"Items of the type {type!r} cannot be sent to this provider.",
                    param="input",
                )

    def _finish(self) -> None:
        self._flush_outputs()
        if not self.contents:
            raise BadRequest("There is no message to answer.", param="input")
        if self.contents[0]["role"] == "model":
            self.contents.insert(0, {"role": "user", "parts": [_OPENING]})
        if self._version >= model_capabilities.SIGNED_CALLS:
            for content in self.contents:
                _sign(content)
        if self.system and model_capabilities.is_gemma(self._request.model):
            heading = {"text": "\n\n".join(self.system)}
            self.contents[0]["parts"].insert(0, heading)
            self.system = []

    def _add(self, role: str, parts: Sequence[Part]) -> None:
        """Add parts; neighbours of one role are one content, and one without parts is
        refused."""
        self._flush_outputs()
        self._append(role, parts)

    def _append(self, role: str, parts: Sequence[Part]) -> None:
        if not parts:
            return
        if self.contents and self.contents[-1]["role"] == role:
            self.contents[-1]["parts"].extend(parts)
        else:
            self.contents.append({"role": role, "parts": list(parts)})

    # The model

    def _replay(self, kind: str, item: Item, raw: list[Part]) -> None:
        self._add("model", raw)
        self.has_hosted_parts |= any("toolCall" in part for part in raw)
        calls = [part["functionCall"] for part in raw if "functionCall" in part]
        if kind == "function_call" and calls:
            name, id = calls[0].get("name") or "", calls[0].get("id") or ""
            self._calls[item["call_id"]] = (name, id, next(self._positions))

    def _rebuild_call(self, item: Item) -> None:
        """The id is sent with both the call and its output, or with neither."""
        name, call_id = item["name"], item["call_id"]
        id = call_id if is_portable_call_id(call_id) else ""
        custom = item["type"] == "custom_tool_call"
        args = {"input": item["input"]} if custom else _arguments(item["arguments"])
        call = {"name": name, "args": args}
        self._add("model", [{"functionCall": {"id": id, **call} if id else call}])
        self._calls[call_id] = (name, id, next(self._positions))

    def _message(self, item: Item) -> None:
        role = item["role"]
        if role == "assistant":
            text = text_of({**item, "type": "message"})
            self._add("model", [{"text": text}] if text else [])
        elif role in ("system", "developer"):
            self._instruction(text_of({**item, "type": "message"}))
        else:
            self._add("user", self._parts(item["content"]))

    def _instruction(self, text: str) -> None:
        """Add an instruction: only the beginning may be a system instruction; later
        ones become user text."""
        if not self.contents and not self._outputs:
            self.system.append(text)
        elif text:  # on its own line, because texts are joined without a separator
            self._add("user", [{"text": f"\n<system>\n{text}\n</system>\n"}])

    # Outputs

    def _output(self, item: Item) -> None:
        try:
            name, id, position = self._calls[item["call_id"]]
        except KeyError as exc:
            raise BadRequest(
                f"No call in this conversation has the id {item['call_id']!r}.",
                param="input",
            ) from exc
        text, media = self._split_output(item["output"])
        response: Part = {"name": name, "response": _response(text)}
        if id:
            response["id"] = id
        inside = [part for part in media if self._fits_inside(part)]
        if inside:
            response["parts"] = inside
        shown = [part for part in media if part not in inside]
        self._outputs.append((position, {"functionResponse": response}, shown))

    def _fits_inside(self, part: Part) -> bool:
        media = part.get("inlineData") or part.get("fileData") or {}
        known = self._version >= model_capabilities.MULTIMODAL_OUTPUTS
        return known and media.get("mimeType") in _IN_OUTPUTS

    def _split_output(self, output: str | Sequence[Part]) -> tuple[str, list[Part]]:
        """The text of an output, and its media parts."""
        if isinstance(output, str):
            return output, []
        parts = self._parts(output)
        words = "\n".join(part["text"] for part in parts if "text" in part)
        return words, [part for part in parts if "text" not in part]

    def _flush_outputs(self) -> None:
        """Append the outputs of a round; media that cannot be inside follow after
        them."""
        if not self._outputs:
            return
        outputs, self._outputs = sorted(self._outputs, key=lambda entry: entry[0]), []
        self._append("user", [response for _, response, _ in outputs])
        for _, response, shown in outputs:
            name = response["functionResponse"]["name"]
            for part in shown:
                self._append("user", [{"text": f"[Returned by {name}:]"}, part])

    # Parts

    def _parts(self, content: str | Sequence[Part]) -> list[Part]:
        if isinstance(content, str):
            return [{"text": content}] if content else []
        parts = [self._part(part) for part in content]
        return [part for part in parts if part != {"text": ""}]

    def _part(self, part: Part) -> Part:
        match part["type"]:
            case "input_image":
                return _image(part)
            case "input_file":
                return _file(part)
            case "input_audio":
                audio = plain_audio(part["input_audio"])
                if not isinstance(audio, dict) or not {"data", "format"} <= {*audio}:
                    raise _cannot_send("sound without its format")
                return _inline(f"audio/{audio['format']}", audio["data"])
        text = part.get("text")
        text = part.get("refusal") if text is None else text
        if not isinstance(text, str):
            raise _cannot_send(f"a part of the type {part['type']!r}")
        return {"text": text}


def encode_contents_prefix(request: Request) -> EncodedPrefix | None:
    """The encoded prefix of the conversation.

    None if the `SENTINEL` would not be a content of its own, or for Gemma, whose
    instructions are inside the contents.
    """
    conversation = Contents(request)
    *contents, last = conversation.contents
    is_alone = last["parts"] == [{"text": text_of(SENTINEL)}]
    if not is_alone or model_capabilities.is_gemma(request.model):
        return None
    notes = frozenset({"hosted"} if conversation.has_hosted_parts else ())
    return EncodedPrefix(encode_messages(contents), notes=notes)


def _sign(content: Content) -> None:
    """Add the placeholder signature to a round's first call if it has none."""
    for number, part in enumerate(content["parts"]):
        if "functionCall" in part:
            if not part.get("thoughtSignature"):
                signed = {**part, "thoughtSignature": NO_SIGNATURE}
                content["parts"][number] = signed
            return


def _arguments(text: str) -> dict[str, Any]:
    try:
        arguments = json.loads(text or "{}")
    except ValueError:
        arguments = None
    return arguments if isinstance(arguments, dict) else {"_raw": text}


def _response(text: str) -> dict[str, Any]:
    """The output as an object: JSON objects unchanged, other text under Google's key.

    An object with `$ref` is sent as text because Gemini interprets `$ref` here.
    """
    if text.startswith(_ERROR):
        return {"error": text.removeprefix(_ERROR)}
    if text.lstrip().startswith("{") and '"$ref"' not in text:
        try:
            return dict(orjson.loads(text))
        except orjson.JSONDecodeError:
            pass
    return {"output": text}


def _image(part: Part) -> Part:
    url = part.get("image_url")
    if isinstance(url, Mapping):
        url = url.get("url")
    address = url or part.get("file_id") or ""
    return _media(address, "", "image/jpeg", "an image by its file id")


def _file(part: Part) -> Part:
    name, data = part.get("filename") or "", part.get("file_data") or ""
    if data and not is_data_url(data):
        return _inline_file(read_file(data, name))
    address = data or part.get("file_url") or part.get("file_id") or ""
    return _media(address, name, "application/pdf", "a file by its id")


def _media(address: str, name: str, usual: str, what: str) -> Part:
    """Inline data from a data URL, or a file that Gemini fetches: its own, gs:// or
    https."""
    if is_data_url(address) and "," in address:
        return _inline_file(read_file(address, name))
    if not address.startswith(("https://", "http://", "gs://")):
        raise _cannot_send(f"{what}; send it along")
    path = address.partition("?")[0]
    kind = media_type_of(name or path, usual)
    return {"fileData": {"mimeType": kind, "fileUri": address}}


def _inline_file(file: FileData) -> Part:
    """Gemini reads texts as UTF-8."""
    data = file.encoded
    if file.is_text and (text := file.text()) is not None:
        data = base64.b64encode(text.encode(errors="replace")).decode()
    return _inline(file.media_type, data)


def _inline(media_type: str, data: str) -> Part:
    if _TEXT.match(media_type):
        media_type = "text/plain"
    return {"inlineData": {"mimeType": media_type, "data": data}}


def _cannot_send(what: str) -> BadRequest:
    return BadRequest(f"This provider does not accept {what}.", param="input")
