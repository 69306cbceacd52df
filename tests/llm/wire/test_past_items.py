"""What is past is written once, and what is sent is what it would have been.

Conversations grow turn by turn as the engine makes them grow (`HistoryPrefix`), whole
and torn, and each request is made both ways: from all items, and from what is past.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from conversations.turns.history import HistoryPrefix, estimate_tokens, render_prompt
from llm.adaptation.adapt import Adaptation
from llm.capabilities import Capabilities
from llm.errors import BadRequest
from llm.http.inline_files import find_urls
from llm.http.request import _body
from llm.provider import Endpoint, Route
from llm.providers import all_providers
from llm.wire.item_prefix_cache import CachedPrefix, SplitItems, encode_prefix
from llm.wire.items import Item, message
from llm.wire.request import Request

ELSEWHERE = {"provider": "another", "model": "m", "route": "9:9"}
MODELS = {
    "anthropic": ["claude-opus-4-6", "claude-opus-5-5", "no-claude"],
    "gemini": ["gemini-3-pro", "gemini-2.0-flash", "gemma-3-27b"],
}
#: Among them some of every dialect of history.
HOSTS = ["anthropic", "gemini", "openai", "deepseek", "mistral", "vllm", "xai"]
FORMATS = ["anthropic", "gemini", "openai_chat", "openai_responses"]
CAPABILITIES: list[dict[str, Any]] = [{}, {"vision": False, "files": False}]
CAPABILITIES += [{"tools": False}]
IMAGE = {"type": "input_image", "image_url": "https://example.com/a.png"}
DATA = {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo="}
TOOL = {"type": "function", "name": "look", "parameters": {"type": "object"}}
RUNS = {"type": "code_interpreter", "container": {"type": "auto"}}


@dataclass(frozen=True)
class Party:
    endpoint: Endpoint
    model: str
    can: dict[str, Any]

    def __str__(self) -> str:
        can = ",".join(self.can) or "all"
        codec = self.endpoint.codec.name
        return f"{self.endpoint.provider.name}.{codec}.{self.model}-{can}"

    @property
    def route(self) -> Route:
        return Route(
            endpoint=self.endpoint,
            model=self.model,
            name=self.model,
            capabilities=Capabilities.from_dict(self.can),
        )

    def encode_items(
        self, items: Sequence[Item], story: HistoryPrefix | None, **options: Any
    ) -> Any:
        """All that is sent to a provider and reported to the caller."""
        endpoint = self.endpoint
        try:
            prompt = render_prompt(
                "Be brief.", items, prefix=story, context_window=10**9
            )
            request = Request(
                model=self.model,
                items=prompt.items,
                instructions=prompt.instructions,
                issuer=endpoint.issuer(self.model),
                **options,
            )
            adapted = Adaptation(request, self.route, ignore_invalid=True)
            headers_of = getattr(endpoint.codec, "headers", lambda request: {})
            return (
                _body(endpoint, adapted.request),
                adapted.degraded,
                estimate_tokens(prompt.instructions, prompt.items),
                headers_of(adapted.request),
                set(find_urls(adapted.request.items, endpoint)),
            )
        except BadRequest as exc:
            return str(exc), exc.param


def parties() -> list[Party]:
    found = []
    for name in HOSTS:
        provider = all_providers()[name]
        for codec in provider.codecs.values():
            endpoint = Endpoint(provider=provider, codec=codec, route="1:1")
            models = MODELS.get(codec.name.partition("_")[0], ["gpt-5.1"])
            found += [Party(endpoint, model, {}) for model in models]
    first = {party.endpoint.codec.name: party for party in reversed(found)}
    return found + [
        replace(party, can=can)
        for name, party in first.items()
        for can in CAPABILITIES[1:]
        if name in FORMATS
    ]


PARTIES = parties()


# Conversations

TEXTS = st.sampled_from(["Yes.", "“Grüße”", " ", "", "<system>", "\ud83d\ude00"])
#: Few, so that some are used twice.
IDS = st.sampled_from(["c1", "c2", "c3", "toolu_4", "call|5", "6" * 50])
#: Of the current model, or of another one.
ISSUERS = st.sampled_from(["here", "here", "elsewhere", ""])


@st.composite
def proven(draw: Any, item: Item) -> Item:
    """With a proof, in whatever form the maker of this wire has it."""
    whose = draw(ISSUERS)
    return {**item, "_proof": whose} if whose else item


def with_proof(item: Item, party: Party) -> Item:
    item = dict(item)
    known = {**item, "call_id": item.pop("_wire", "") or item.get("call_id")}
    if not (whose := item.pop("_proof", "")):
        return item
    here = party.endpoint.issuer(party.model)
    issuer, raw = (here, _raw(known, party)) if whose == "here" else (ELSEWHERE, {})
    return {**item, "provider_data": {"issuer": issuer, "raw": raw}}


def _raw(item: Item, party: Party) -> Any:
    kind, name = item["type"], party.endpoint.codec.name
    text = item["content"][0]["text"] if kind == "message" else "Hm."
    if name.startswith("openai_chat"):
        return {"reasoning_content": text}
    if name.startswith("openai_responses"):
        more = {"encrypted_content": "x"} if kind == "reasoning" else {}
        shown = {name: item[name] for name in item if not name.startswith("_")}
        return {**shown, **more, "id": "raw_1"}
    if name == "gemini":
        if kind == "function_call":
            call = {"name": item["name"], "args": {}, "id": item["call_id"]}
            return [{"functionCall": call}]
        if kind == "web_search_call":
            return [{"toolCall": {}}, {"toolResponse": {}}]
        return [{"text": text, "thought": kind == "reasoning"}]
    block: dict[str, Any] = {"type": "text", "text": text}
    if kind == "reasoning":
        block = {"type": "thinking", "thinking": text, "signature": "s"}
    elif kind == "function_call":
        block = {"type": "tool_use", "id": item["call_id"], "name": "look", "input": {}}
    elif kind == "web_search_call":
        id = item["_of"]
        used = {"type": "mcp_tool_use", "id": id, "name": "search", "input": {}}
        result = {"type": "mcp_tool_result", "tool_use_id": id, "content": []}
        return {"content": [used, *([result] if item["_found"] else [])]}
    return {"content": [block], "container": f"of {text}"}


def message_with(role: str, text: str, *parts: Any, **more: Any) -> Item:
    item = {**message(role, text), "id": "msg_1", **more}
    return {**item, "content": [*item["content"], *parts]}


USERS = st.builds(partial(message_with, "user"), TEXTS)
PICTURES = st.builds(
    lambda text, part, detail: message_with("user", text, {**part, "detail": detail}),
    TEXTS,
    st.sampled_from([IMAGE, DATA]),
    st.sampled_from(["auto", "high"]),
)
ORDERS = st.builds(message_with, st.sampled_from(["developer", "system"]), TEXTS)
ANSWERS = st.builds(partial(message_with, "assistant"), TEXTS).flatmap(proven)
SOURCED = ANSWERS.map(lambda item: {**item, "phase": "final"})
TORN = ANSWERS.map(lambda item: {**item, "parley:interrupted": True})
THOUGHTS = st.sampled_from(
    [
        {"type": "reasoning", "id": "rs_1", "summary": []},
        {"type": "reasoning", "id": "rs_1", "summary": [], "status": "incomplete"},
    ]
).flatmap(proven)


def call(id: str, status: str = "completed", name: str = "look") -> Item:
    item = {"type": "function_call", "id": "fc_1", "call_id": id, "name": name}
    return {**item, "arguments": '{"at": 1}', "status": status}


def output(id: str, result: Any) -> Item:
    return {"type": "function_call_output", "call_id": id, "output": result}


#: One that its maker knows by another id.
CALLS = st.builds(
    lambda item, wire: {**item, "_wire": wire},
    st.builds(call, IDS, st.sampled_from(["completed", "completed", "incomplete"])),
    st.sampled_from(["w1", "w2", "w3", "w4", ""]),
).flatmap(proven)
OUTPUTS = st.builds(
    output, IDS, st.sampled_from(["12°", "Error: gone.", '{"a": 1}', [DATA]])
)
ROUNDS = st.builds(
    lambda made, found: [*made, *(output(i["call_id"], found) for i in reversed(made))],
    st.lists(CALLS, min_size=1, max_size=2),
    st.sampled_from(["12°", [{"type": "input_text", "text": "12°"}, DATA]]),
)
OTHERS = st.one_of(
    st.builds(
        lambda id: {
            "type": "custom_tool_call",
            "call_id": id,
            "name": "look",
            "input": "?",
        },
        IDS,
    ),
    st.builds(
        lambda id: {"type": "custom_tool_call_output", "call_id": id, "output": "!"},
        IDS,
    ),
    st.builds(
        lambda id, found: {
            "type": "web_search_call",
            "id": id,
            "status": "completed",
            "_proof": "here",
            "_of": id,
            "_found": found,
        },
        IDS,
        st.booleans(),
    ),
    st.builds(
        lambda id: {
            "type": "mcp_approval_request",
            "id": id,
            "name": "n",
            "arguments": "{}",
            "server_label": "s",
        },
        IDS,
    ),
    st.builds(
        lambda id: {
            "type": "mcp_approval_response",
            "approval_request_id": id,
            "approve": True,
        },
        IDS,
    ),
    st.builds(
        lambda id: {
            "type": "computer_call",
            "id": "cu_1",
            "call_id": id,
            "action": {"type": "screenshot"},
            "status": "completed",
        },
        IDS,
    ),
    st.builds(
        lambda id: {
            "type": "computer_call_output",
            "call_id": id,
            "output": {"type": "computer_screenshot", "image_url": DATA["image_url"]},
        },
        IDS,
    ),
    st.just({"type": "parley:note"}),
)
ONE = st.one_of(THOUGHTS, CALLS, OUTPUTS, ANSWERS, SOURCED, TORN, ORDERS, OTHERS)
SEARCHES = st.builds(
    lambda id, found: {
        "type": "web_search_call",
        "id": id,
        "status": "completed",
        "_proof": "here",
        "_of": id,
        "_found": found,
    },
    IDS,
    st.booleans(),
)
WORDS = st.sampled_from(["Why?", "“So?”"])
#: As nearly all are.
USUAL = st.builds(
    lambda question, order, thought, search, rounds, answer: [
        *(question, *order, *thought, *search, *chain(*rounds), answer)
    ],
    st.one_of(
        WORDS.map(partial(message_with, "user")),
        st.builds(
            lambda text, part, detail: message_with(
                "user", text, {**part, "detail": detail}
            ),
            WORDS,
            st.sampled_from([IMAGE, DATA]),
            st.sampled_from(["auto", "high"]),
        ),
    ),
    st.lists(st.builds(message_with, st.just("developer"), WORDS), max_size=1),
    st.lists(THOUGHTS, max_size=1),
    st.lists(SEARCHES, max_size=1),
    st.lists(ROUNDS, max_size=2),
    WORDS.map(partial(message_with, "assistant")).flatmap(proven),
)
UNUSUAL = st.builds(
    lambda question, answered: [*question, *answered],
    st.lists(st.one_of(USERS, PICTURES, ORDERS, OUTPUTS), max_size=2),
    st.lists(ONE, max_size=4),
)
TURNS = st.lists(st.one_of(USUAL, USUAL, USUAL, UNUSUAL), min_size=2, max_size=7)


def distinct(turns: Sequence[Sequence[Item]]) -> list[list[Item]]:
    """With ids that no two turns share."""
    fields = ("call_id", "_of", "approval_request_id")
    return [
        [
            item
            | {name: f"{item[name]}{number}" for name in fields if name in item}
            | ({"id": f"{item['id']}{number}"} if "id" in item else {})
            for item in turn
        ]
        for number, turn in enumerate(turns)
    ]


@pytest.mark.parametrize("party", PARTIES, ids=str)
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(turns=TURNS, are_distinct=st.booleans(), more=st.data())
def test_the_cached_encoding_equals_a_fresh_one(party, turns, are_distinct, more):
    turns = distinct(turns) if are_distinct else turns
    others = [party, *(p for p in PARTIES if p.endpoint.codec == party.endpoint.codec)]
    before: list[Item] = []
    story = HistoryPrefix()
    for turn in turns:
        turn = [with_proof(item, party) for item in turn]
        # A model of the same wire, now and then: a proof of ours is another's to it.
        receiver = more.draw(st.sampled_from([party] * len(others) * 2 + others))
        options: dict[str, Any] = more.draw(
            st.sampled_from(
                [
                    {"tools": [TOOL, RUNS]},
                    {"tools": [TOOL]},
                    {"reasoning": {"effort": "none"}},
                    {},
                ]
            )
        )
        for end in {1, len(turn)}:
            items = [*before, *turn[:end]]
            assert receiver.encode_items(
                items, story, **options
            ) == receiver.encode_items(items, None, **options)
        before += turn
        story = story.extend(before)


@pytest.mark.parametrize("party", PARTIES, ids=str)
def test_an_ordinary_conversation_is_written_once(party, monkeypatch):
    if "gemma" in party.model:
        pytest.skip("Gemma's instructions stand inside what was said first.")
    written: list[int] = []
    fold = CachedPrefix.fold

    def counting(self, name, make, add, key=None):
        if name != "encoded":
            return fold(self, name, make, add, key)
        return fold(self, name, lambda i: written.append(len(i)) or make(i), add, key)

    monkeypatch.setattr(CachedPrefix, "fold", counting)
    before: list[Item] = []
    story = HistoryPrefix()
    for number in range(3):
        rounds = [call(str(number)), output(str(number), "12°")]
        rounds = [] if party.can.get("tools") is False else rounds
        before += [
            message_with("user", "?"),
            *rounds,
            message_with("assistant", f"{number}."),
        ]
        story = story.extend(before)
        prompt = render_prompt(
            "", [*before, message_with("user", "And?")], prefix=story
        )
        request = Request(model=party.model, items=prompt.items)
        adapted = Adaptation(request, party.route).request
        assert isinstance(adapted.items, SplitItems)
        body = party.endpoint.codec.encode(adapted)
        sent = body.get("messages") or body.get("input") or body["contents"]
        assert any(isinstance(each, orjson.Fragment) for each in sent)
    assert written == [len(before) // 3] * 3


@pytest.mark.parametrize(
    ("host", "models", "efforts"),
    [
        ("anthropic", ["claude-opus-4-6", "claude-opus-5-5"], ["high", "high"]),
        ("gemini", ["gemini-2.0-flash", "gemini-3-pro"], ["high", "high"]),
        ("deepseek", ["deepseek-chat"] * 2, ["none", "high"]),
    ],
)
def test_a_prefix_encoded_for_another_model_is_encoded_again(host, models, efforts):
    provider = all_providers()[host]
    endpoint = Endpoint(provider=provider, codec=provider.codec(), route="1:1")
    before = [
        message_with("user", "?"),
        message_with("developer", "Hm."),
        call("1"),
        output("1", "12°"),
    ]
    before += [message_with("assistant", "So.")]
    story = HistoryPrefix().extend(before)
    items = [*before, message_with("user", "And?")]
    for model, effort in zip(models, efforts, strict=True):
        receiver, options = (
            Party(endpoint, model, {}),
            {"reasoning": {"effort": effort}},
        )
        assert receiver.encode_items(items, story, **options) == receiver.encode_items(
            items, None, **options
        )


def test_a_story_that_cannot_go_on_is_begun_anew():
    approval_request = {"type": "mcp_approval_request", "id": "1"}
    approved = {"type": "mcp_approval_response", "approval_request_id": "1"}
    items = [
        message_with("user", "?"),
        approval_request,
        message_with("assistant", "May I?"),
    ]
    story = HistoryPrefix().extend(items)
    more = [
        *items,
        message_with("user", "Yes."),
        approved,
        message_with("assistant", "Done."),
    ]
    assert not story.can_be_followed_by(more[3:])
    anew = story.extend(more)
    assert list(anew.cached.items) == more
    assert anew.can_be_followed_by([message_with("user", "And?")])
    assert not HistoryPrefix().extend([*more, call("1")]).length  # half an answer


def test_a_thread_is_a_sequence_of_all_its_items():
    old, new = [{"n": 1}, {"n": 2}], [{"n": 3}]
    thread = SplitItems(CachedPrefix(old), new)
    assert thread == [*old, *new] == list(thread)
    assert [thread[0], thread[2], thread[-1], thread[-3]] == [
        *old[:1],
        *new,
        *new,
        old[0],
    ]
    assert thread[1:] == [old[1], *new]
    assert len(thread) == 3
    for number in (3, -4):
        with pytest.raises(IndexError):
            thread[number]


def test_only_new_items_are_examined():
    seen: list[int] = []

    def count(items: Sequence[Item]) -> int:
        seen.append(len(items))
        return len(items)

    past = CachedPrefix([{}, {}])
    longer = past.extend([{}])
    assert past.fold("n", count, int.__add__) == 2
    longer = past.extend([{}])
    assert [longer.fold("n", count, int.__add__) for _ in range(2)] == [3, 3]
    assert seen == [2, 1]
    assert longer.fold("n", count, int.__add__, key="another") == 3
    assert past.fold("n", count, int.__add__) == 2  # what it knows is its own
    assert seen == [2, 1, 3]


def test_an_item_that_cannot_be_encoded_is_not_cached():
    def refuse(request: Request) -> Any:
        raise BadRequest("No.")

    request = Request(
        model="m", items=SplitItems(CachedPrefix([message_with("user", "?")]), [])
    )
    assert encode_prefix(request, "codec", refuse) is None
