"""A vendor's bill beside what was counted here. The samples are made by hand, with the
columns of exports of OpenAI and Anthropic."""

from __future__ import annotations

import csv
import io
import re
from contextlib import suppress
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import override_settings
from django.urls import reverse
from hypothesis import given
from hypothesis import strategies as st

from llm.models import ModelCall, Provider
from llm.pricing import vendor_bill
from llm.pricing.usage_counting import catch_up
from llm.pricing.vendor_bill import BillError, normal_name, read_bill
from tests.conversations.scene import signed_in, staff
from tests.llm.pricing.usage_calls import save_calls

PAGE = reverse("admin:usage_bill")
OPENAI_USAGE = """\
start_time,end_time,start_time_iso,end_time_iso,project_id,num_model_requests,user_id,\
api_key_id,model,batch,input_tokens,output_tokens,input_cached_tokens
1772323200,1772323260,2026-03-01T00:00:00+00:00,2026-03-01T00:01:00+00:00,,2,,,\
gpt-5-2025-08-07,false,600,300,100
1772323260,1772323320,2026-03-01T00:01:00+00:00,2026-03-01T00:02:00+00:00,,1,,,\
gpt-5-2025-08-07,false,400,200,0
1772323320,1772323380,2026-03-01T00:02:00+00:00,2026-03-01T00:03:00+00:00,,,,,,,,,
"""
OPENAI_COST = """\
start_time,end_time,start_time_iso,end_time_iso,amount_value,amount_currency,line_item
1772323200,1772409600,2026-03-01T00:00:00+00:00,2026-03-02T00:00:00+00:00,\
0.0300000000000000000000,usd,"gpt-5-2025-08-07, input"
1772323200,1772409600,2026-03-01T00:00:00+00:00,2026-03-02T00:00:00+00:00,\
0.02,usd,"gpt-5-2025-08-07, output"
"""
ANTHROPIC_USAGE = """\
usage_date_utc,model_version,api_key,workspace,usage_type,context_window,\
usage_input_tokens_no_cache,usage_input_tokens_cache_write_5m,\
usage_input_tokens_cache_write_1h,usage_input_tokens_cache_read,usage_output_tokens,\
web_search_count,inference_geo,speed
2026-03-01,claude-sonnet-4-5-20250929,ci,Default,message,≤ 200k,600,200,100,100,500,0,,
"""
ANTHROPIC_COST = """\
usage_date_utc,model,workspace,api_key,usage_type,context_window,token_type,cost_usd,\
list_price_usd,cost_type,inference_geo,speed
2026-03-01,Claude Sonnet 4.5,Default,ci,message,≤ 200k,input_no_cache,0.03,0.03,token,,
2026-03-01,Claude Sonnet 4.5,Default,ci,message,≤ 200k,output,0.02,0.02,token,,
"""
SAMPLES = {
    "OpenAI usage": (OPENAI_USAGE, "gpt-5-2025-08-07"),
    "OpenAI cost": (OPENAI_COST, "gpt-5-2025-08-07"),
    "Anthropic usage": (ANTHROPIC_USAGE, "claude-sonnet-4-5-20250929"),
    "Anthropic cost": (ANTHROPIC_COST, "claude-sonnet-4-5-20250929"),
}


@pytest.fixture
def seer(db: None) -> Any:
    Provider.objects.create(name="Host", kind="openai")
    return signed_in(staff("seer", "view_usage"))


def upload(client: Any, content: str | bytes, provider: str = "Host") -> Any:
    data = content.encode() if isinstance(content, str) else content
    file = SimpleUploadedFile("usage.csv", data, content_type="text/csv")
    return client.post(PAGE, {"provider": provider, "file": file})


def count_calls_of(model: str, at: datetime, **fields: Any) -> None:
    """What the samples bill."""
    usage = {"input_tokens": 1000, "cached_tokens": 100, "output_tokens": 500}
    save_calls({"model_name": model, **usage, "cost": Decimal("0.05"), **fields})
    ModelCall.objects.filter(is_counted=False).update(created_at=at)


NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize("sample", SAMPLES)
def test_a_bill_that_agrees_to_one_percent_has_no_mismatch(sample: str, seer: Any):
    content, model = SAMPLES[sample]
    count_calls_of(model, NOON, output_tokens=505, cost=Decimal("0.0505"))
    found = upload(seer, content)
    assert found.status_code == 200, found.text
    assert found.context["found"].mismatches == []
    assert "One model on one day was compared; none differs." in found.text
    assert found.context["found"].first == date(2026, 3, 1)


@pytest.mark.parametrize("sample", SAMPLES)
def test_a_difference_above_one_percent_is_listed(sample: str, seer: Any):
    content, model = SAMPLES[sample]
    count_calls_of(model, NOON, output_tokens=510, cost=Decimal("0.051"))
    found = upload(seer, content).context["found"]
    (mismatch,) = found.mismatches
    assert mismatch.measure == ("cost" if "cost" in sample else "output_tokens")
    assert (mismatch.day, mismatch.model) == (date(2026, 3, 1), normal_name(model))
    assert mismatch.difference == Decimal("0.02")


def test_calls_under_an_earlier_name_of_the_provider_count(seer: Any):
    provider = Provider.objects.get()
    model = provider.models.create(name="gpt-5")
    content, name = SAMPLES["OpenAI usage"]
    count_calls_of(name, NOON, model_id=model.pk)
    count_calls_of(name, NOON, model_id=model.pk, provider_name="Other")
    Provider.objects.filter(pk=provider.pk).update(name="New")
    Provider.objects.create(name="Other", kind="openai")
    assert upload(seer, content, "New").context["found"].mismatches == []


def test_what_only_one_side_has_is_a_mismatch(seer: Any):
    count_calls_of("gpt-5-mini", NOON)
    count_calls_of("gpt-5", NOON, provider_name="Another")  # another vendor's
    page = upload(seer, OPENAI_COST)
    found = {
        (each.model, each.billed, each.counted)
        for each in page.context["found"].mismatches
    }
    zero, cost = Decimal(0), Decimal("0.05")
    assert found == {("gpt-5", cost, zero), ("gpt-5-mini", zero, cost)}


@override_settings(TIME_ZONE="Asia/Tokyo")
def test_days_are_those_of_utc_as_vendors_count(seer: Any):
    late = datetime(2026, 3, 1, 23, 30, tzinfo=UTC)  # 2 March in Tokyo
    count_calls_of("gpt-5-2025-08-07", late)
    assert upload(seer, OPENAI_USAGE).context["found"].mismatches == []


@pytest.mark.parametrize("zone", ["UTC", "Etc/UTC", "Asia/Tokyo"])
@pytest.mark.parametrize("source", ["own", "call"])
def test_calls_with_keys_that_people_bring_are_in_other_bills(
    seer: Any, source: str, zone: str
):
    with override_settings(TIME_ZONE=zone):
        for key_source in ("shared", source):
            count_calls_of("gpt-5-2025-08-07", NOON, key_source=key_source)
        found = upload(seer, OPENAI_USAGE).context["found"]
    assert found.mismatches == []


@pytest.mark.parametrize(("zone", "counted"), [("Etc/UTC", 1000), ("Asia/Tokyo", 0)])
def test_erased_calls_count_where_days_are_those_of_utc(
    seer: Any, zone: str, counted: int
):
    with override_settings(TIME_ZONE=zone):
        count_calls_of("gpt-5-2025-08-07", NOON)
        catch_up()
        ModelCall.objects.all().delete()
        found = upload(seer, OPENAI_USAGE).context["found"]
    assert found.totals[0] == ("input_tokens", 1000, counted)


def save_again(
    content: str,
    delimiter: str,
    point: str,
    encoding: str,
    quoting: Any = csv.QUOTE_MINIMAL,
) -> bytes:
    """The file as a spreadsheet program saves it in other countries."""
    rows = list(csv.reader(io.StringIO(content)))
    for row in rows:
        row[:] = [
            each.replace(".", point) if re.fullmatch(r"\d+\.\d+", each) else each
            for each in row
        ]
    text = io.StringIO()
    csv.writer(text, delimiter=delimiter, quoting=quoting).writerows(rows)
    return text.getvalue().encode(encoding)


@pytest.mark.parametrize("sample", SAMPLES)
@pytest.mark.parametrize(
    ("delimiter", "point", "encoding"),
    [(";", ",", "utf-8-sig"), ("\t", ",", "utf-16"), ("\t", ".", "utf-8")],
)
@pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
def test_a_bill_that_a_spreadsheet_program_saved_is_the_same(
    sample: str, delimiter: str, point: str, encoding: str, quoting: Any
):
    content, _model = SAMPLES[sample]
    saved = save_again(content, delimiter, point, encoding, quoting)
    assert read_bill(saved).figures == read_bill(content.encode()).figures


def test_excels_line_about_the_delimiter_is_left_out():
    saved = b"sep=;\r\n" + save_again(OPENAI_COST, ";", ",", "utf-8")
    assert read_bill(saved).figures == read_bill(OPENAI_COST.encode()).figures


def test_a_comma_in_a_number_is_never_taken_for_another_one():
    def cost(number: str, delimiter: str = ",") -> Decimal:
        row = delimiter.join(["2026-03-01", "m", f'"{number}"'])
        text = COSTS.replace(",", delimiter) + row
        ((_key, figures),) = read_bill(text.encode()).figures.items()
        return figures["cost"]

    assert cost("1,234,567.5") == Decimal("1234567.5")
    assert cost("0,0125", ";") == Decimal("0.0125")
    assert cost("1,5E-05", ";") == Decimal("0.000015")
    for number, delimiter in (("0,03", ","), ("1.234,5", ";"), ("1,23,4", ",")):
        with pytest.raises(BillError, match="cost_usd is no number"):
            cost(number, delimiter)


@pytest.mark.parametrize("delimiter", [";", "\t"])
@pytest.mark.parametrize("number", ["1,234", "1.234", "-12,000", "999.999"])
def test_a_cost_that_may_be_a_thousand_times_as_much_is_refused(
    number: str, delimiter: str
):
    row = delimiter.join(["2026-03-01", "m", number])
    text = COSTS.replace(",", delimiter) + row
    with pytest.raises(BillError, match=f"cost_usd is {number}, which may mean thou"):
        read_bill(text.encode())


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize("number", ["1.234", "1.000", "0.5", "12.5", "-1.250"])
def test_tokens_are_whole_numbers(number: str, delimiter: str):
    header = delimiter.join(["start_time", "model", "input_tokens", "output_tokens"])
    row = delimiter.join(["1772323200", "m", "1", number])
    with pytest.raises(BillError, match="Line 2: output_tokens is "):
        read_bill(f"{header}\n{row}\n".encode())


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_tokens_may_have_a_comma_between_thousands(delimiter: str):
    header = delimiter.join(["start_time", "model", "input_tokens", "output_tokens"])
    row = delimiter.join(["1772323200", "m", '"1,234,567"', "600.0"])
    ((_key, figures),) = read_bill(f"{header}\n{row}\n".encode()).figures.items()
    assert (figures["input_tokens"], figures["output_tokens"]) == (1234567, 600)


HEADER = ANTHROPIC_COST.partition("\n")[0]
COSTS = "usage_date_utc,model,cost_usd\n"


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("", "Choose a file"),
        ("a,b\n1,2\n", "columns"),
        ("datum|modell|kosten\n1|2|3\n", "line that the vendor wrote"),
        ("<script>alert(1)</script>", "columns"),
        (b"\xff\xfe\x00", "UTF-8"),
        (HEADER, "no usage"),
        (COSTS + "soon,m,1\n", "Line 2: usage_date_utc is no date."),
        (COSTS + "2026-03-01,m,=1+1\n", "Line 2: cost_usd is no number."),
        (COSTS + "2026-03-01,m,NaN\n", "Line 2: cost_usd is no number."),
        (COSTS + "2026-03-01,m,1e999999999\n", "Line 2: cost_usd is no number."),
        (COSTS + "2026-03-01,m,1,2,3\n", "too many columns"),
        (COSTS + '2026-03-01,"m,1\n', "Line"),
        (COSTS + f"2026-03-01,{'m' * 200_000},1\n", "Line"),
        (COSTS + "2020-01-01,m,1\n2026-03-01,m,1\n", "more than 366 days"),
        (OPENAI_USAGE.replace("1772323200", "9" * 30), "start_time is no Unix time."),
        (OPENAI_USAGE.replace("1772323200", "9" * 11), "the year 5138 cannot be right"),
        (COSTS + "9999-12-31,m,1\n", "Line 2: the year 9999 cannot be right."),
        (OPENAI_COST.replace("usd", "eur"), "amount_currency is not usd."),
    ],
)
def test_a_file_that_is_no_bill_is_one_clear_error(
    content: str | bytes, problem: str, seer: Any
):
    page = upload(seer, content)
    assert page.status_code == 400
    assert page.text.count('role="alert"') == 1
    (errors,) = page.context["form"].errors.values()
    assert problem in errors[0] or (content == "" and "empty" in errors[0])
    assert "alert(1)" not in page.text


def test_huge_files_are_refused(seer: Any, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(vendor_bill, "MAX_LINES", 10)
    row = "2026-03-01,m,1\n"
    assert "more than 10 lines" in upload(seer, COSTS + row * 11).text
    monkeypatch.setattr(vendor_bill, "MAX_FILE", 100)
    assert "20 MB" in upload(seer, COSTS + row * 11).text


def test_hostile_models_stay_text(seer: Any):
    page = upload(seer, COSTS + "2026-03-01,<script>alert(1)</script>,1\n")
    assert page.status_code == 200
    assert "&lt;script&gt;alert(1)" in page.text
    assert "<script>alert" not in page.text


def test_only_staff_who_may_see_usage_compare_bills(db: None):
    few = signed_in(staff("few", "view_modelcall"))
    assert few.get(PAGE).status_code == 403
    assert upload(few, OPENAI_COST).status_code == 403
    assert signed_in(staff("seer", "view_usage")).get(PAGE).status_code == 200


def test_a_provider_must_be_chosen(seer: Any):
    assert upload(seer, OPENAI_COST, provider="").status_code == 400
    assert upload(seer, OPENAI_COST, provider="\0").status_code == 400


@given(
    st.binary(max_size=300)
    | st.text(st.characters(codec="utf-8"), max_size=300).map(str.encode)
)
def test_no_bytes_fail_otherwise(data: bytes):
    for start in (b"", COSTS.encode(), OPENAI_COST.encode(), ANTHROPIC_USAGE.encode()):
        with suppress(BillError):
            assert read_bill(start + data).figures


def test_a_file_with_endless_columns_is_refused_at_its_first_line():
    first, rest = COSTS.split("\n", 1)
    with pytest.raises(BillError, match="These are not the columns"):
        read_bill((first + "," * 1_000 + "\n" + rest).encode())
