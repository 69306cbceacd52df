"""Staff read this server's own words about providers in their language."""

from __future__ import annotations

import ast
import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from django.utils import timezone
from django.utils.translation.trans_real import DjangoTranslation

from conversations.turns.error_texts import TEXTS
from llm import capabilities, router
from llm.error_texts.english_texts import EnglishTexts
from llm.error_texts.for_staff import describe_error, describe_reason
from llm.error_texts.staff_instructions import INSTRUCTIONS, OTHERS, instruct
from llm.errors import BadRequest, InvalidKey, LLMError, ModelNotAvailable
from llm.http import connection_problems as problems
from llm.http.connection_problems import describe_connection_problem
from llm.keys.pool import KeyPool
from llm.models import LanguageModel, Provider
from llm.pricing.vendor_bill import BillError, read_bill
from llm.sync import key_check, model_list
from llm.sync.model_list import ModelChange
from tests.serving import BASE

REFERRAL = "; ask the staff to "
USAGE = b"usage_date_utc,model,cost_usd\n"


@pytest.fixture(autouse=True)
def pseudo(monkeypatch: pytest.MonkeyPatch) -> None:
    """A language in which each text of the catalogue is in brackets."""
    monkeypatch.setattr(DjangoTranslation, "gettext", lambda self, text: f"⟦{text}⟧")


def referrals() -> Iterator[str]:
    """All texts of `llm` that refer people to the staff, with `x` for each value."""
    for path in sorted((BASE / "llm").rglob("*.py")):
        if path.name in ("errors.py", "address_problems.py", "staff_instructions.py"):
            continue  # the default texts, which the words of their codes replace
        nodes = list(ast.walk(ast.parse(path.read_text())))
        texts = [each for each in nodes if isinstance(each, ast.JoinedStr)]
        parts = {id(part) for text in texts for part in text.values}
        for node in nodes:
            if id(node) not in parts and REFERRAL in (text := _text_of(node)):
                yield text.replace("{name!r}", "x")


def _text_of(node: ast.AST) -> str:
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr():
            return "".join(_text_of(each) or "x" for each in node.values)
    return ""


def test_each_referral_to_the_staff_is_an_instruction_to_them():
    matched = set()
    for text in referrals():
        shown = describe_error(LLMError(text))
        assert shown[0] + shown[-1] == "⟦⟧", text
        assert "ask the staff" not in shown
        instruction = text.replace(REFERRAL, "; ")
        matched |= {each for each in INSTRUCTIONS if becomes(each, instruction)}
    assert matched == {*INSTRUCTIONS}


def becomes(text: str, message: str) -> bool:
    return bool(EnglishTexts([text]).translate(message))


@pytest.mark.parametrize("texts", [(*INSTRUCTIONS, *OTHERS), TEXTS])
def test_no_text_is_taken_for_another_one(texts: tuple[str, ...]):
    for text in texts:
        message = re.sub(r"%\(\w+\)s", "x", text)
        assert [each for each in texts if becomes(each, message)] == [text]


@pytest.mark.django_db
def test_why_a_model_cannot_be_used_is_told_in_the_readers_language(settings):
    provider = Provider.objects.create(name="G", kind="groq")
    model = LanguageModel(name="a", provider=provider)
    found = []
    model.enabled = False
    found.append(model.why_unusable)
    model.enabled, model.retires_at = True, datetime(2020, 1, 31, tzinfo=UTC)
    found.append(model.why_unusable)
    model.retires_at, provider.enabled = None, False
    found.append(model.why_unusable)
    provider.enabled, settings.DISABLED_PROVIDERS = True, {"groq"}
    found.append(model.why_unusable)
    unknown = Provider(name="G", kind="gone")
    found.append(unknown.why_unusable)
    with pytest.raises(ModelNotAvailable) as caught:
        router.endpoint_of(unknown, None)
    found.append(str(caught.value))
    assert all(found)
    for text in found:
        assert instruct(text) == f"⟦{text}⟧"


@pytest.mark.django_db
def test_that_all_keys_rest_is_told_in_the_readers_language():
    provider = Provider.objects.create(name="G", kind="groq")
    rest = {"state": "resting", "rest_until": timezone.now() + timedelta(hours=1)}
    pool = KeyPool(provider)
    pool.fill(provider, [provider.keys.create(secret="k", **rest)])
    error = str(pool.refusal("a", time.time()))
    assert instruct(error) == f"⟦{error}⟧"


def test_that_a_key_has_a_wrong_character_is_told_in_the_readers_language():
    source = (BASE / "llm/http/client.py").read_text()
    [text] = [each for each in OTHERS if each.startswith("The API key contains")]
    assert f'"{text}"' in source


def test_a_reason_that_is_stored_with_a_key_is_an_instruction_as_well():
    stored = "E_LLM_INVALID_KEY: The key 'a' of the provider 'b' is empty; ask the"
    shown = describe_reason(f"{stored} staff to enter it.")
    assert shown == (
        "E_LLM_INVALID_KEY: ⟦The key 'a' of the provider 'b' is empty; enter it.⟧"
    )


def test_a_reason_that_is_cut_off_where_it_is_stored_is_told_whole():
    name = "p" * 60
    whole = (
        f"The key 'a' of the provider '{name}' was entered for a different address of"
        " the provider and is not sent; enter it again."
    )
    stored = whole.replace("; ", REFERRAL)
    for length in range(len(stored) - 1, 120, -1):
        start = "E_LLM_INVALID_KEY: ".rjust(200 - length, "E")
        shown = describe_reason(start + stored[:length])
        assert shown.removeprefix(start) == f"⟦{whole}⟧"


def test_a_reason_of_which_too_little_is_left_stays_as_it_is():
    name = "p" * 200
    stored = f"E_LLM_INVALID_KEY: The key 'a' of the provider '{name}"[:200]
    assert describe_reason(stored) == stored


@pytest.mark.parametrize(
    ("stored", "shown"),
    [
        (problems.SILENT.format(seconds=20.0), "⟦Silent for 20 s.⟧"),
        (
            problems.PROXY_TLS.certificates[10],
            "⟦No secure connection: the proxy's certificate has expired.⟧",
        ),
        (
            problems.NOT_REACHED.format(error="OSError"),
            "⟦The provider cannot be reached. (OSError)⟧",
        ),
    ],
)
def test_a_connection_problem_is_told_in_the_readers_language(stored: str, shown: str):
    assert describe_connection_problem(stored) == shown


@pytest.mark.parametrize(
    "file",
    [
        b"\xff",
        b"a,b\n1,2\n",
        USAGE,
        USAGE + b"2026-01-01,m,1,2\n",
        USAGE + b"2026-01-01,m,many\n",
        USAGE + b"soon,m,1\n",
        USAGE + b"1901-01-01,m,1\n",
        b"usage_date_utc;model;cost_usd\n2026-01-01;m;1.234\n",
        b"start_time,model,input_tokens,output_tokens\nnow,m,1,1\n",
        b"start_time,model,input_tokens,output_tokens\n1,m,1.5,1\n",
    ],
)
def test_what_is_wrong_with_a_bill_is_told_in_the_readers_language(file: bytes):
    with pytest.raises(BillError) as found:
        read_bill(file)
    text = str(found.value)
    assert text[0] + text[-1] == "⟦⟧"
    assert text.count("⟦") == (2 if "Line" in text else 1)


def test_differences_of_a_model_are_told_in_the_readers_language():
    change = ModelChange(
        LanguageModel(name="a", provider=Provider(name="G", kind="groq")),
        {"vision": None, "efforts": None},
        {"vision": True, "efforts": []},
        {},
        {"cached_input": Decimal("0.5")},
        datetime(2027, 1, 31, tzinfo=UTC),
    )
    price = "price of ⟦cached input⟧: ⟦unknown⟧ → 0.5 USD per million tokens"
    assert change.lines == [
        "vision: ⟦unknown⟧ → ⟦yes⟧",
        "efforts: ⟦unknown⟧ → ⟦none⟧",
        f"⟦{price}⟧",
        "⟦retired from: ⟦unknown⟧ → 2027-01-31⟧",
    ]


@pytest.mark.parametrize(
    "overrides", [[], {"wings": 1}, {"vision": 1}, {"efforts": 1}, {"sampling": 1}]
)
def test_a_wrong_capability_is_told_in_the_readers_language(overrides: object):
    [problem] = capabilities.problems(overrides)
    assert problem[0] + problem[-1] == "⟦⟧"


@pytest.mark.django_db
def test_what_cannot_be_tested_or_synced_is_told_in_the_readers_language(settings):
    row = Provider.objects.create(name="G", kind="groq")
    provider = Provider.objects.get(pk=row.pk)
    with pytest.raises(InvalidKey, match="⟦There is no key; add one"):
        key_check.probe(provider)
    with pytest.raises(InvalidKey, match="⟦There is no key; add one"):
        model_list.compare(provider)
    settings.DISABLED_PROVIDERS = {"groq"}
    why = "⟦ENABLE_GROQ=false switches its provider off⟧"
    with pytest.raises(ModelNotAvailable, match=f"⟦Not tested: {why}.⟧"):
        key_check.probe(provider)
    with pytest.raises(BadRequest, match=f"⟦Not synced: {why}.⟧"):
        model_list.compare(provider)
    assert instruct("its provider 'G' is switched off")[0] == "⟦"


@pytest.mark.django_db
def test_a_key_that_cannot_be_sent_is_no_referral_to_the_staff():
    provider = Provider.objects.create(name="G", kind="groq")
    provider.keys.create(secret="")
    [finding] = key_check.probe(provider)
    assert finding.text.startswith("⟦The key 'default' of the provider 'G' is empty")
    assert "ask the staff" not in finding.text
