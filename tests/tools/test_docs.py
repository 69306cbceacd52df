"""The examples of docs/tools.md, as they stand there, one after another."""

from __future__ import annotations

import re
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from conversations.engine.loading.approvals import Decisions
from tools.http.exchange import FetchedResponse
from tools.registry import Context, FormAnswer, discover, get_tool

from .calls import call, happenings

PAGE = Path(__file__).parents[2] / "docs" / "tools.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


@pytest.fixture
def shop(monkeypatch):
    module = ModuleType("shop_of_the_docs.tools")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    header = "from __future__ import annotations\n"
    for example in EXAMPLES:
        exec(compile(header + example, str(PAGE), "exec"), vars(module))
    return module


async def say(shop, name, **arguments):
    function = getattr(shop, name)
    context = Context(user_id=7)
    *progress, last = await happenings(
        [call(name, **arguments)], function, context=context
    )
    return [each.message for each in progress], last.output


def test_every_example_is_a_tool(shop):
    assert set(discover([shop])) == {
        "book_room",
        "book_table",
        "digits_of_factorial",
        "my_files",
        "refund",
        "send_parcel",
        "shipping_cost",
        "survey",
        "take",
        "traffic_light",
        "words_of",
    }


async def test_the_first_tool_is_called(shop):
    _, output = await say(shop, "shipping_cost", country="FR", kilos=2)
    assert output == '{"country":"FR","euros":7.0}'
    assert shop.shipping_cost("FR", 2, express=True)["euros"] == 14


async def test_arguments_have_their_types_and_their_limits(shop):
    guests = [{"name": "Ada", "age": 36}, {"name": "Alan", "age": 41}]
    booking = {"arrival": "2026-11-21", "guests": guests}
    _, output = await say(shop, "book_room", **booking)
    assert output == "Booked for Ada and Alan, Saturday, garden view."
    guests[0]["age"] = -1
    _, output = await say(shop, "book_room", **booking)
    mistake = "at guests[0].age: the value is less than the minimum of 0"
    assert mistake in output
    assert mistake in PAGE.read_text()


async def test_progress_and_context(shop):
    progress, output = await say(shop, "my_files", folder="home")
    assert progress[-1:] == ["2 of 2 files"]
    assert output == '["user 7: home/a.txt","user 7: home/b.txt"]'


async def test_a_picture_is_an_answer(shop):
    _, output = await say(shop, "traffic_light", colour="red")
    assert [part["type"] for part in output] == ["input_text", "input_image"]


async def test_an_error_is_the_tools_message(shop):
    _, output = await say(shop, "take", fruit="pears", count=1)
    assert output == "Error: there are no pears; there are apples."
    _, output = await say(shop, "take", fruit="apples", count=1)
    assert output == "2 left."


async def test_work_that_takes_long_does_not_block(shop):
    assert not get_tool(shop.survey).blocking
    context = Context(idempotency_key="k1")
    accepted = await shop.send_parcel("Riga", context)
    parcel = get_tool(shop.send_parcel)
    assert await parcel.poll(context, accepted.token) == accepted
    shop.parcels["k1"] = "arrived"
    assert await parcel.poll(context, accepted.token) == "arrived"


async def test_large_refunds_need_approval(shop):
    tools = {"refund": get_tool(shop.refund)}
    decisions = Decisions(tools)
    small, large = (call("refund", order=1, euros=sum) for sum in (20, 200))
    assert not decisions.needs_approval(small)
    assert decisions.needs_approval(large)


async def test_a_form_is_answered_or_not(shop):
    async def answer_form(context, message, form):
        return FormAnswer("accept", {"time": form["properties"]["time"]["enum"][1]})

    booked = await shop.book_table(2, Context(ask=answer_form))
    assert booked == "Booked for 2 at 21:00."
    assert "Nothing" in await shop.book_table(2, Context())


async def test_a_page_is_fetched_by_the_server(shop):
    async def send(request):
        return FetchedResponse(status=200, body=b"three words here")

    assert await shop.words_of("https://host/", Context(send_request=send)) == 3


@pytest.mark.server
async def test_an_isolated_tool_is_found_by_its_process(tmp_path, monkeypatch):
    header = "from __future__ import annotations\n"
    (tmp_path / "shop_on_disk.py").write_text(header + "\n".join(EXAMPLES))
    monkeypatch.syspath_prepend(tmp_path)
    shop = import_module("shop_on_disk")
    try:
        progress, output = await say(shop, "digits_of_factorial", number=2000)
    finally:
        del sys.modules["shop_on_disk"]
    assert progress[-1:] == ["2000 of 2000"]
    assert output == '{"digits":4764,"base":16}'
