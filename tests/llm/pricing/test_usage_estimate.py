"""Tokens that a host does not report are estimated, and marked so."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import aclosing, suppress
from typing import Any

import pytest
import respx
from django.test import Client
from hypothesis import given
from hypothesis import strategies as st

from llm import api
from llm.errors import LLMError
from llm.http import client
from llm.models import LanguageModel, ModelCall, Provider
from llm.pricing.usage_estimate import FILE_TOKENS, measure_prompt
from llm.pricing.usage_report import UsageQuery, report_usage
from tests.llm.chat import DONE, chunk, frames
from tests.llm.hosts import Host, breaks_off, refuses, text_stream

PROMPT = "Tell me of the sea. " * 20  # some 100 tokens
PICTURE = "data:image/png;base64," + "iVBORw0KGgoA" * 20_000


@pytest.fixture
def web() -> Iterator[respx.MockRouter]:
    with respx.mock(using="parley", assert_all_called=False) as mock:
        yield mock


@pytest.fixture
def model(transactional_db: None) -> LanguageModel:
    provider = Provider.objects.create(
        name="A", kind="openai_compatible", base_url="https://a.test/v1"
    )
    provider.keys.create(secret="sk-1")
    model = provider.models.create(name="a-model")
    model.prices = {"input": "2", "output": "8"}
    model.save()
    return model


def silent(*texts: str) -> bytes:
    """A stream that reports no usage."""
    pieces = [chunk({"content": text}) for text in texts]
    return frames(*pieces, chunk(finish="stop"), DONE)


def ask(web: respx.MockRouter, *answers: Any, prompt: Any = PROMPT) -> ModelCall:
    Host(web, "a", *answers)
    with suppress(LLMError):
        api.generate_sync("a-model", prompt)
    return ModelCall.objects.latest("pk")


def test_an_answer_without_usage_is_estimated_from_its_text(
    web: respx.MockRouter, model: LanguageModel
):
    row = ask(web, silent("word " * 400))
    assert row.is_estimated
    assert row.input_tokens == pytest.approx(100, rel=0.8)
    assert row.output_tokens == 500  # 2,000 letters
    assert row.cost is not None
    assert row.cost > 0


def test_what_a_host_reports_is_not_replaced(
    web: respx.MockRouter, model: LanguageModel
):
    row = ask(web, text_stream("word " * 400))
    assert (row.input_tokens, row.output_tokens) == (10, 5)
    assert not row.is_estimated


def test_what_a_host_reports_in_part_is_completed(
    web: respx.MockRouter, model: LanguageModel
):
    usage = {"prompt_tokens": 7}
    row = ask(web, text_stream("word " * 400, usage=usage))
    assert (row.input_tokens, row.output_tokens) == (7, 500)
    assert row.is_estimated


def test_a_refused_call_has_no_tokens(web: respx.MockRouter, model: LanguageModel):
    row = ask(web, *[refuses(500)] * 3)
    assert (row.status, row.input_tokens, row.is_estimated) == ("failed", None, False)


def test_a_cut_answer_counts_for_what_came(web: respx.MockRouter, model: LanguageModel):
    row = ask(web, breaks_off("word " * 40))
    assert row.status == "failed"
    assert row.is_estimated
    assert row.output_tokens == 50


@pytest.mark.django_db(transaction=True)
def test_a_stopped_answer_counts_for_what_came(
    web: respx.MockRouter, model: LanguageModel
):
    Host(web, "a", silent(*["word " * 40] * 9))

    async def stop_early() -> None:
        async with aclosing(api.stream("a-model", PROMPT)) as events:
            async for event in events:
                if event["type"] == "response.output_text.delta":
                    break
        await client.aclose()

    asyncio.run(stop_early())
    row = ModelCall.objects.get()
    assert row.status == "cancelled"
    assert row.is_estimated
    assert row.output_tokens


def test_a_picture_counts_as_one_and_not_by_its_bytes(
    web: respx.MockRouter, model: LanguageModel
):
    picture = {"type": "input_image", "image_url": PICTURE, "detail": "auto"}
    text = {"type": "input_text", "text": "What is it?"}
    prompt = [{"type": "message", "role": "user", "content": [text, picture]}]
    row = ask(web, silent("A cat."), prompt=prompt)
    assert row.input_tokens
    assert FILE_TOKENS <= row.input_tokens < FILE_TOKENS + 200


def test_estimates_are_marked_in_sums_pages_and_files(
    web: respx.MockRouter, model: LanguageModel, admin_client: Client
):
    row = ask(web, silent("word " * 400))
    Host(web, "a", text_stream("x"))
    report = report_usage(UsageQuery.of_last(1))
    assert (report.total.estimated, report.total.unmeasured) == (1, 0)
    assert not report.total.is_exact
    page = admin_client.get("/admin/usage/").text
    assert "~500" in "".join(page.split())
    assert "The tokens of one call are estimated" in page
    assert "estimated" in admin_client.get("/admin/usage/csv/").text.splitlines()[0]
    found = admin_client.get("/api/usage/all/").json()
    assert found["total"]["estimated"] == 1
    listed = admin_client.get("/admin/llm/modelcall/").text
    assert f"~ {row.input_tokens} → 500" in listed


@given(st.binary(max_size=200), st.integers(0, 5), st.binary(max_size=50))
def test_measuring_ends_and_never_exceeds_the_bytes(
    body: bytes, times: int, end: bytes
):
    whole = body + b';base64,"data":"' * times + b"A" * 5000 * times + end
    assert 0 <= measure_prompt(whole) <= len(whole) // 4 + FILE_TOKENS * 2 * times
