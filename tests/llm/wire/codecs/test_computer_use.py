from __future__ import annotations

from typing import Any

import pytest

from llm.providers import all_providers
from llm.wire.codecs.anthropic.codec import AnthropicCodec
from llm.wire.codecs.anthropic.computer_use import computer_call, is_action
from llm.wire.items import Issuer, Item, user_message
from llm.wire.request import Request
from llm.wire.response_builder import ResponseBuilder
from llm.wire.sse import SSEDecoder
from tests.llm.strict import messages, responses
from tests.llm.strict.rules import Refusal

PICTURE = "data:image/png;base64,iVBORw0KGgo="
SCREEN = {
    "type": "computer_use_preview",
    "display_width": 1024,
    "display_height": 768,
    "environment": "browser",
}
WISH = user_message("wish: screen")


class Client:
    """A program that acts on a screen, and one host that is strict."""

    def __init__(self, kind: str, host: Any) -> None:
        self.issuer: Issuer = {"provider": kind, "model": "m", "route": "1:1"}
        self.codec = all_providers()[kind].codec()
        self.host = host
        self.items: list[Item] = [WISH]

    def body(self) -> dict[str, Any]:
        request = Request(
            model="claude-sonnet-5-5" if self.host is messages else "gpt-6-luna",
            items=self.items,
            tools=[SCREEN],
            issuer=self.issuer,
        )
        return self.codec.encode(request)

    def take_turn(self) -> list[Item]:
        """The items of the answer, which are stored with their proofs."""
        answer = self.host.answer(self.body(), self.issuer)
        assert not isinstance(answer, Refusal), answer
        builder, sse = ResponseBuilder(id="r", model="m"), SSEDecoder()
        decoder = self.codec.decoder()
        builder.begin_call()
        for event in [*sse.feed(answer), *sse.close()]:
            builder.feed(list(decoder.feed(event)))
        builder.feed(list(decoder.close()))
        builder.end_call()
        items = [self._with_proof(i, builder.proofs) for i in builder.output]
        self.items += items
        return items

    def _with_proof(self, item: Item, proofs: dict[str, Any]) -> Item:
        if item["id"] not in proofs:
            return item
        data = {"issuer": self.issuer, "raw": proofs[item["id"]]}
        return {**item, "provider_data": data}

    def show(self, call: Item) -> None:
        shot = {"type": "computer_screenshot", "image_url": PICTURE}
        self.items.append(
            {
                "type": "computer_call_output",
                "id": "cuo_of_ours",
                "status": "completed",
                "call_id": call["call_id"],
                "output": shot,
            }
        )


HOSTS = {"openai": responses, "anthropic": messages}


@pytest.mark.parametrize("kind", HOSTS)
def test_an_action_is_answered_by_a_screenshot(kind: str):
    client = Client(kind, HOSTS[kind])
    call = client.take_turn()[-1]
    assert (call["type"], call["status"]) == ("computer_call", "completed")
    assert call["action"] == {"type": "screenshot"}
    client.show(call)
    assert client.take_turn()[-1]["type"] == "message"


@pytest.mark.parametrize("kind", HOSTS)
def test_an_unperformed_action_is_no_obstacle(kind: str):
    client = Client(kind, HOSTS[kind])
    client.take_turn()
    client.items.append(user_message("wish: words"))
    assert client.take_turn()[-1]["type"] == "message"


@pytest.mark.parametrize("kind", HOSTS)
@pytest.mark.parametrize("other", ["openai", "anthropic", "gemini", "mistral"])
def test_another_provider_sees_the_screen_and_not_the_action(kind: str, other: str):
    client = Client(kind, HOSTS[kind])
    client.show(client.take_turn()[-1])
    request = Request(model="claude-sonnet-5-5", items=client.items, issuer=None)
    sent_body = str(all_providers()[other].codec().encode(request))
    assert "iVBORw0KGgo=" in sent_body
    for word in ("computer_call", "tool_use", "function_call", "toolset"):
        assert word not in sent_body


def test_a_client_may_bring_the_call_along():
    call = {
        "type": "computer_call",
        "id": "cu_1",
        "call_id": "call_1",
        "action": {"type": "wait"},
        "pending_safety_checks": [],
        "status": "completed",
    }
    client = Client("openai", responses)
    client.items.append(call)
    client.show(call)
    sent_input = client.body()["input"]
    assert [item["type"] for item in sent_input[1:]] == [
        "computer_call",
        "computer_call_output",
    ]
    assert sent_input[2].keys() == {"type", "call_id", "output"}


def use(name: str, **arguments: Any) -> dict[str, Any]:
    block = {"type": "tool_use", "id": "toolu_1", "name": name, "input": arguments}
    return {**block, "toolset_name": "computer"}


@pytest.mark.parametrize(
    ("block", "action"),
    [
        (
            use("left_click", coordinate=[3, 4], text="ctrl+shift"),
            {
                "type": "click",
                "button": "left",
                "x": 3,
                "y": 4,
                "keys": ["ctrl", "shift"],
            },
        ),
        (use("middle_click"), {"type": "click", "button": "wheel"}),
        (use("double_click", coordinate=[1, 2]), {"type": "double_click"}),
        (use("mouse_move", coordinate=[1, 2]), {"type": "move", "x": 1, "y": 2}),
        (
            use("left_click_drag", start_coordinate=[1, 2], coordinate=[3, 4]),
            {"type": "drag", "path": [{"x": 1, "y": 2}, {"x": 3, "y": 4}]},
        ),
        (use("key", text="ctrl+s"), {"type": "keypress", "keys": ["ctrl", "s"]}),
        (use("key", text="+"), {"type": "keypress", "keys": ["+"]}),
        (use("type", text="Hi"), {"type": "type", "text": "Hi"}),
        (use("wait", duration=2), {"type": "wait", "parley:seconds": 2}),
        (
            use("scroll", coordinate=[1, 2], scroll_direction="up", scroll_amount=3),
            {"type": "scroll", "x": 1, "scroll_x": 0, "scroll_y": -300},
        ),
        (
            use("triple_click", coordinate=[1, 2]),
            {"type": "parley:triple_click", "coordinate": [1, 2]},
        ),
    ],
)
def test_claudes_actions_in_openais_words(block: dict, action: dict):
    assert is_action(block)
    converted = computer_call(block)["action"]
    assert {name: converted[name] for name in action} == action


def test_a_key_pressed_often_is_several_actions():
    item = computer_call(use("key", text="Down", repeat=3))
    assert item["actions"] == [{"type": "keypress", "keys": ["Down"]}] * 3
    assert len(computer_call(use("key", text="x", repeat=10**9))["actions"]) == 100


def test_a_function_of_ours_by_such_a_name_is_no_action():
    block = use("screenshot")
    del block["toolset_name"]
    assert not is_action(block)
    assert not is_action({**block, "toolset_name": "browser"})


def test_the_older_tools_of_claude_are_named_in_the_header():
    tool = {"type": "computer_20251124", "name": "computer"}
    request = Request(model="claude-opus-4-6", items=[WISH], tools=[tool])
    headers = AnthropicCodec().headers(request)
    assert headers["anthropic-beta"] == "computer-use-2025-11-24"
