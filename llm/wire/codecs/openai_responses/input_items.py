"""Encoder of canonical items as the `input` of the Responses API.

Items are sent back to their issuer unchanged; for other providers, and after an edit by
staff, they are rebuilt: without ids and statuses, without reasoning and without
receipts of hosted tools. Internal fields are never sent.

Source: https://platform.openai.com/docs/guides/conversation-state
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from llm.wire.codecs.call_order import pair_calls
from llm.wire.codecs.openai_responses.forwarding import has_own_id
from llm.wire.hosted_tools import compaction_message, screenshot_message
from llm.wire.items import (
    CALLS,
    SUMMARY,
    Item,
    call_ids,
    is_portable_call_id,
    proof_for,
    text_of,
)
from llm.wire.request import Request

#: Receipts of hosted tools, which are refused without an id.
_RECEIPTS = frozenset(
    {
        "code_interpreter_call",
        "computer_call",
        "file_search_call",
        "image_generation_call",
        "mcp_call",
        "web_search_call",
    }
)
#: Items that a host finds by their ids.
_BY_ID = _RECEIPTS | {"compaction", "mcp_approval_request", "mcp_list_tools"}


def has_unknown_id(item: Item) -> bool:
    """Whether the id of an item that a host finds by it is one that only this server
    knows: such an item is left out."""
    is_by_id = item.get("type") in _BY_ID and "provider_data" not in item
    return is_by_id and has_own_id(item)


class ResponsesInput:
    """The `input` of a request.

    A reasoning item must stand before the item it led to, and that item's id is valid
    only after its reasoning. So reasoning is sent back when its issuer can read it and
    the next item is sent back too; otherwise messages and calls lose their ids, and
    receipts, which cannot, are left out.
    """

    def __init__(
        self,
        request: Request,
        *,
        developer_role: bool,
        phases: bool,
        reports_own_calls: bool,
    ) -> None:
        self.items: list[dict[str, Any]] = []
        self.has_encrypted_reasoning = False  # the items contain encrypted reasoning
        self.used_call_ids: set[str] = set()  # call ids that the items use
        self._repeats: dict[str, int] = {}  # next numbers of ids that are in use
        self.is_cut = False  # a call without an output was left out
        self._request = request
        self._developer_role = developer_role
        self._phases = phases
        self._reports_own_calls = reports_own_calls
        self._call_ids: dict[str, str] = {}  # canonical to the wire's
        called, self._answered = call_ids(request.items)
        #: Approval requests, our ids to the wire's.
        self._approval_ids: dict[str, str] = {}
        self._ids_are_valid = True  # ids are still valid
        whole = request.items
        if called:
            whole = pair_calls(request.items, self._answered, moves=False)
        # Hosts refuse a computer call that has no output.
        acted = {i["call_id"] for i in whole if i.get("type") == "computer_call_output"}
        items = [
            item
            for item in whole
            if item.get("type") != "computer_call" or item["call_id"] in acted
        ]
        for index, item in enumerate(items):
            following = items[index + 1 : index + 2]
            self._add(item, following[0] if following else None)

    def _add(self, item: Item, following: Item | None) -> None:
        raw = proof_for(self._request.issuer, item) if "provider_data" in item else None
        kind = item.get("type", "message")
        if kind == "reasoning":
            self._ids_are_valid = self._is_replayable(raw, following)
            if raw is not None and self._ids_are_valid:
                self.has_encrypted_reasoning |= bool(raw.get("encrypted_content"))
                self.items.append(raw)
        elif raw is not None:
            if self._is_xais_call(item):
                self.is_cut = True
                return
            if self._ids_are_valid or kind not in _RECEIPTS:
                self.items.append(self._replay(kind, item, raw))
                self._remember_id(kind, item, raw)
        else:
            self._ids_are_valid = True  # not the assistant's: a new answer follows
            self._rebuild(kind, item)

    def _is_xais_call(self, item: Item) -> bool:
        """Whether it is a call of a tool of xAI's own: others wait for its output."""
        if self._reports_own_calls or item.get("type") != "custom_tool_call":
            return False
        return item["call_id"] not in self._answered

    def _is_replayable(self, raw: Any, following: Item | None) -> bool:
        if not raw or not (raw.get("encrypted_content") or raw.get("content")):
            return False
        return (
            following is not None
            and proof_for(self._request.issuer, following) is not None
        )

    def _replay(self, kind: str, item: Item, raw: dict[str, Any]) -> dict[str, Any]:
        if not self._ids_are_valid and kind in {"message", *CALLS}:
            raw = {k: v for k, v in raw.items() if k not in ("id", "status")}
        if kind not in CALLS:
            return raw
        call_id = raw["call_id"]
        if not call_id or call_id in self.used_call_ids:
            call_id = self._free_id(item["call_id"])
            raw = {**raw, "call_id": call_id}
        self._name(item, call_id)
        return raw

    def _remember_id(self, kind: str, item: Item, raw: dict[str, Any]) -> None:
        """Remember the wire's id, because the answer will use our id."""
        if kind == "mcp_approval_request":
            self._approval_ids[item.get("id", "")] = raw.get("id", "")
        elif kind == "computer_call":
            self._call_ids[item["call_id"]] = raw["call_id"]

    def _name(self, call: Item, call_id: str) -> None:
        self._call_ids[call["call_id"]] = call_id
        self.used_call_ids.add(call_id)

    def _free_id(self, call_id: str) -> str:
        """A valid call id that is not in use: some hosts restart their numbering with
        every answer."""
        id, count = _portable(call_id), self._repeats.get(call_id, 0)
        while id in self.used_call_ids:
            id, count = _portable(f"{call_id} {count}"), count + 1
        if count:
            self._repeats[call_id] = count
        return id

    def _rebuild(self, kind: str, item: Item) -> None:
        match kind:
            case "message":
                self._message(item)
            case "custom_tool_call" if item["call_id"] not in self._answered:
                pass  # a call of xAI's own tool
            case "function_call" | "custom_tool_call":
                call_id = self._free_id(item["call_id"])
                self._name(item, call_id)
                self.items.append({**_bare(item), "call_id": call_id})
            case "function_call_output" | "custom_tool_call_output":
                ours, output = item["call_id"], _parts(item["output"])
                call_id = self._call_ids.get(ours) or _portable(ours)
                self.items.append({**_bare(item), "call_id": call_id, "output": output})
            case "computer_call_output":
                self._screenshot(item)
            case "mcp_approval_response":
                self._approve(item)
            case "compaction" if SUMMARY in item or has_unknown_id(item):
                if (summary := compaction_message(item)) is not None:
                    self._message(summary)
            case _ if "provider_data" in item or kind.startswith("parley:"):
                pass  # another provider's receipt
            case _ if has_unknown_id(item):
                pass  # the host would refuse the whole request
            case _ if kind in _RECEIPTS and item.get("status") != "completed":
                pass  # cut off, so there is no proof for it
            case _:
                self.items.append(without_private_fields(item))
                self._remember_id(kind, item, item)

    def _screenshot(self, item: Item) -> None:
        call_id = self._call_ids.get(item["call_id"])
        if call_id is None:  # its call was left out; the screenshot is still useful
            self._message(screenshot_message(item))
        else:
            self.items.append({**_bare(item), "call_id": call_id})

    def _approve(self, item: Item) -> None:
        """Send an approval only to the provider that requested it."""
        request_id = item["approval_request_id"]
        if request_id not in self._approval_ids and any(
            "provider_data" in each or has_unknown_id(each)
            for each in self._request.items
            if each.get("id") == request_id
        ):
            return
        wire_id = self._approval_ids.get(request_id, request_id)
        self.items.append({**_bare(item), "approval_request_id": wire_id})

    def _message(self, item: Item) -> None:
        role = item["role"]
        if role == "assistant":
            # The short form: typed output parts would need an id.
            if text := text_of({**item, "type": "message"}):
                message = {"type": "message", "role": role, "content": text}
                if self._phases and item.get("phase"):
                    message["phase"] = item["phase"]
                self.items.append(message)
            return
        if role == "developer" and not self._developer_role:
            role = "system"
        content = _parts(item["content"])
        self.items.append({"type": "message", "role": role, "content": content})


def _parts(content: Any) -> Any:
    """A string, or a list of input parts."""
    if not isinstance(content, list):
        return content
    return [_part(part) for part in content]


def _part(part: dict[str, Any]) -> dict[str, Any]:
    part = {k: v for k, v in without_private_fields(part).items() if v is not None}
    if part.get("type") == "input_image":
        part.setdefault("detail", "auto")
    if part.get("type") in ("output_text", "text"):
        return {"type": "input_text", "text": part["text"]}
    return part


def _bare(item: Item) -> dict[str, Any]:
    """`item` without ids, statuses and internal fields."""
    return {
        k: v
        for k, v in without_private_fields(item).items()
        if k not in ("id", "status")
    }


def without_private_fields(item: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: value
        for name, value in item.items()
        if name != "provider_data" and not name.startswith("parley:")
    }


def _portable(call_id: str) -> str:
    if is_portable_call_id(call_id):
        return call_id
    return f"call_{hashlib.sha256(call_id.encode()).hexdigest()[:32]}"
