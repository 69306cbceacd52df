"""A token with a list of tools gets no other tool of this server at the gateway."""

from __future__ import annotations

from typing import Any

import pytest
from asgiref.sync import sync_to_async

from conversations.models import AccessToken, Preset
from llm.models import LanguageModel
from tests.conversations.gateway.forwarding.hosts import (
    CODECS,
    PATHS,
    Client,
    Host,
    add_model,
    canned_reply,
)
from tools.models import Tool


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("by", ["name", "all", "preset"])
async def test_the_gateway_offers_no_other_tool(client: Client, by: str):
    await sync_to_async(Tool.objects.sync)()
    await AccessToken.objects.aupdate(allowed_tools="calculator")

    def make_preset(model: str) -> str:
        name = model.partition("/")[2]
        row = Preset.objects.create(
            name="p", language_model=LanguageModel.objects.get(name=name)
        )
        row.tools.set(Tool.objects.filter(name__in=["calculator", "current_time"]))
        return "preset/p"

    with Host(lambda received: canned_reply("chat", received)) as host:
        model = await add_model("openai", CODECS["chat"], host.url, "new-model")
        body: dict[str, Any] = {"messages": [{"role": "user", "content": "Hi"}]}
        own: dict[str, Any] = {"type": "parley:tools"}
        if by == "preset":
            model = await sync_to_async(make_preset)(model)
        elif by == "name":
            own["names"] = ["current_time"]
        if by != "preset":
            body["tools"] = [own]
        answer = await client.post(PATHS["chat"], {**body, "model": model})
    if by == "name":
        assert answer.status == 400
        assert b"There is no tool 'current_time'" in answer.body
        assert not host.received
        return
    assert answer.status == 200, answer.body
    [received] = host.received
    names = [each["function"]["name"] for each in received.body["tools"]]
    assert names == ["calculator"]
