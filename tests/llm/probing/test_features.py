"""A probe finds the defects of a host, and only those."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest
from django.apps import apps
from django.utils import timezone

from llm import router
from llm.models import LanguageModel, ModelCall, ModelProbe, Provider
from llm.probing.findings import FEATURES, Finding
from llm.probing.jobs import run_probe
from llm.sync import key_check

from .host import ProbedHost

pytestmark = pytest.mark.django_db

PLANTED = "sk-planted-0123456789-wxyz"
ALL_WORK = dict.fromkeys(FEATURES, "works")
#: Its thoughts use up all tokens, so nothing is known but that it counts them.
NO_WORD = {
    **dict.fromkeys(FEATURES, "unclear"),
    "usage": "works",
    "parallel_tools": "untested",
}


@pytest.fixture
def provider() -> Provider:
    row = Provider.objects.create(
        name="Fake", kind="openai_compatible", allow_private_network=True
    )
    row.models.create(name="m")
    return row


def probe(provider: Provider, base_url: str) -> ModelProbe:
    provider.base_url = base_url
    provider.save()
    if not provider.keys.exists():
        provider.keys.create(secret=PLANTED)
    row = ModelProbe.objects.create(model=provider.models.get())
    run_probe(row.pk)
    row.refresh_from_db()
    return row


def outcomes(row: ModelProbe) -> dict[str, str]:
    return {each["feature"]: each["outcome"] for each in row.findings}


def findings(row: ModelProbe) -> Iterator[Finding]:
    return (Finding(**each) for each in row.findings)


@pytest.mark.parametrize(
    ("quirk", "expected"),
    [
        ("", {}),
        ("ignores tools", {"tool": "fails", "parallel_tools": "untested"}),
        ("calls one by one", {"parallel_tools": "fails"}),
        ("refuses schemas", {"json_schema": "fails"}),
        ("ignores the schema", {"json_schema": "fails"}),
        ("no usage in streams", {"usage": "fails"}),
        ("dies at images", {"image": "fails"}),
        ("drops images", {"image": "unclear"}),
        ("fails once at images", {"image": "unclear"}),
        ("refuses its reasoning", {"reasoning_replay": "fails"}),
        ("does not reason", {"reasoning_replay": "untested"}),
        ("never streams", {"stream": "fails"}),
        ("only streams", {"text": "fails"}),
        ("writes on", {"cancel": "fails"}),
        (
            "refuses streams",
            {"stream": "fails", "usage": "untested", "cancel": "untested"},
        ),
        ("loads first", {}),
        ("must be told to call", {"parallel_tools": "fails"}),
        ("calls one at first", {}),
        ("writes loose JSON once", {}),
        ("filters tools", {"tool": "unclear", "parallel_tools": "untested"}),
        ("thinks of images until its limit", {"image": "unclear"}),
        ("renamed the limit", {}),
        ("thinks first", {}),
        ("thinks until its limit", NO_WORD),
        ("comments first", {}),
        ("usage in each chunk", {}),
        ("usage behind the end", {}),
        (
            "writes calls as text",
            {"tool": "fails", "parallel_tools": "untested"},
        ),
        ("has another key", dict.fromkeys(FEATURES, "untested")),
    ],
)
def test_a_probe_finds_exactly_the_planted_defect(
    provider: Provider, quirk: str, expected: dict[str, str]
):
    with ProbedHost(quirk).listening() as base_url:
        row = probe(provider, base_url)
    assert outcomes(row) == {**ALL_WORK, **expected}
    assert row.finished_at is not None
    assert all(finding.text for finding in findings(row))


def test_several_defects_of_a_host_are_found_together(provider: Provider):
    host = ProbedHost("calls one by one", "dies at images", "no usage in streams")
    with host.listening() as base_url:
        row = probe(provider, base_url)
    defects = {"parallel_tools": "fails", "image": "fails", "usage": "fails"}
    assert outcomes(row) == {**ALL_WORK, **defects}


def test_a_dead_host_ends_the_probe_at_its_first_request(provider: Provider):
    with ProbedHost().listening() as base_url:
        pass  # nobody listens there any more
    row = probe(provider, base_url)
    assert outcomes(row) == {**dict.fromkeys(FEATURES, "untested"), "text": "fails"}
    assert LanguageModel.objects.get().probed_capabilities is None


def test_findings_become_capabilities_with_a_date(provider: Provider):
    with ProbedHost("dies at images").listening() as base_url:
        row = probe(provider, base_url)
    model = LanguageModel.objects.select_related("provider").get()
    assert model.probed_at == row.finished_at
    assert model.capabilities == {}
    known = router.capabilities(model)
    assert (known.tools, known.parallel_tools, known.json_schema) == (True, True, True)
    assert (known.vision, known.reasoning) == (False, True)


def test_a_partial_probe_leaves_what_an_earlier_one_found(provider: Provider):
    provider.models.update(probed_capabilities={"vision": True, "tools": False})
    with ProbedHost("drops images").listening() as base_url:
        assert outcomes(probe(provider, base_url))["image"] == "unclear"
    found = LanguageModel.objects.get().probed_capabilities
    assert found is not None
    assert (found["vision"], found["tools"]) == (True, True)


def test_a_probe_does_not_override_what_staff_entered(provider: Provider):
    provider.models.update(capabilities={"vision": True, "tools": False, "seed": None})
    with ProbedHost("dies at images").listening() as base_url:
        probe(provider, base_url)
    model = LanguageModel.objects.select_related("provider").get()
    assert model.capabilities == {"vision": True, "tools": False, "seed": None}
    known = router.capabilities(model)
    assert (known.vision, known.tools, known.json_schema) == (True, False, True)


def test_a_host_that_quotes_the_key_does_not_bring_it_onto_the_row(provider: Provider):
    with ProbedHost("has another key").listening() as base_url:
        row = probe(provider, base_url)
    assert PLANTED not in repr(row.findings)
    assert "Incorrect API key" in next(findings(row)).text


@pytest.mark.parametrize(
    ("status", "state"), [(401, "disabled"), (402, "resting"), (403, "active")]
)
def test_after_a_refused_key_the_next_one_is_tried_and_the_row_says_so(
    provider: Provider, status: int, state: str
):
    host = ProbedHost()
    host.refused_keys = {PLANTED: status}
    with host.listening() as base_url:
        Provider.objects.update(base_url=base_url)
        provider.refresh_from_db()
        provider.keys.create(label="bad", secret=PLANTED)
        provider.keys.create(label="draining", secret="sk-3", drains_at=timezone.now())
        provider.keys.create(label="good", secret="sk-2")
        row = probe(provider, base_url)
    assert outcomes(row) == ALL_WORK
    text = next(findings(row)).text
    assert "with the key good" in text
    assert "refused: bad" in text
    assert "not this key" in text
    bad = provider.keys.get(label="bad")
    assert bad.state == state
    assert ("m" in (bad.model_rests or {})) is (status == 403)
    used = [headers["Authorization"] for headers in host.headers]
    assert used == [f"Bearer {PLANTED}", *["Bearer sk-2"] * (len(used) - 1)]


def test_when_every_key_is_refused_nothing_is_said_about_text(provider: Provider):
    host = ProbedHost()
    host.refused_keys = {PLANTED: 401, "sk-2": 401}
    with host.listening() as base_url:
        Provider.objects.update(base_url=base_url)
        provider.refresh_from_db()
        provider.keys.create(label="one", secret=PLANTED)
        provider.keys.create(label="two", secret="sk-2")
        row = probe(provider, base_url)
    assert set(outcomes(row).values()) == {"untested"}
    first, *others = findings(row)
    assert first.text.startswith("The host refused the key: one")
    assert {each.text for each in others} == {
        "The host accepted no key, so nothing else was tried."
    }
    for key in provider.keys.all():
        assert key.state == key.State.DISABLED
        assert key.state_reason.startswith("E_LLM_INVALID_KEY: ")
    assert LanguageModel.objects.get().probed_capabilities is None


def test_requests_of_a_probe_are_few_bounded_and_recorded(provider: Provider):
    host = ProbedHost()
    with host.listening() as base_url:
        probe(provider, base_url)
    assert len(host.requests) == ModelCall.objects.count() <= 12
    assert {*ModelCall.objects.values_list("purpose", flat=True)} == {"probe"}
    assert all(0 < each["max_tokens"] <= 4096 for each in host.requests)


def test_what_takes_too_long_proves_nothing(
    provider: Provider, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("llm.probing.tiny_request.SILENCE", 1.0)
    with ProbedHost("is silent at images").listening() as base_url:
        row = probe(provider, base_url)
    assert outcomes(row) == {**ALL_WORK, "image": "unclear"}
    assert "Silent for 1 s" in "".join(
        ModelCall.objects.values_list("error_detail", flat=True)
    )


def test_a_question_cut_by_the_time_of_the_probe_is_recorded(
    provider: Provider, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("llm.probing.features.PROBE_TIME", 3.0)
    host = ProbedHost("is silent at images")
    with host.listening() as base_url:
        row = probe(provider, base_url)
    assert outcomes(row)["image"] == "untested"
    assert len(host.requests) == ModelCall.objects.count()
    assert ModelCall.objects.filter(status="cancelled").count() == 1


def test_a_question_keeps_to_the_limit_that_staff_set(provider: Provider):
    provider.models.update(max_output_tokens=512)
    host = ProbedHost()
    with host.listening() as base_url:
        assert outcomes(probe(provider, base_url)) == ALL_WORK
    assert all(0 < each["max_tokens"] <= 512 for each in host.requests)


def test_a_feature_that_a_host_refuses_is_no_error_of_its_key(provider: Provider):
    with ProbedHost("refuses schemas").listening() as base_url:
        probe(provider, base_url)
    key = provider.keys.get()
    assert (key.last_error, key.state) == ("", key.State.ACTIVE)


def test_a_switched_off_model_and_provider_can_be_probed(provider: Provider):
    provider.enabled = False
    provider.models.update(enabled=False)
    with ProbedHost().listening() as base_url:
        assert outcomes(probe(provider, base_url)) == ALL_WORK


def test_a_probe_without_a_key_that_can_be_sent_says_so(provider: Provider):
    provider.keys.create(secret=PLANTED)
    provider.base_url = "https://elsewhere.example/v1"
    provider.save()
    row = ModelProbe.objects.create(model=provider.models.get())
    run_probe(row.pk)
    row.refresh_from_db()
    assert "different address" in row.error
    assert row.finished_at is not None


@pytest.mark.parametrize(
    "change",
    [
        {"base_url": "http://127.0.0.1:9/v1"},
        {"codec": "openai_responses"},
        {"options": {"quirks": {"sends_tool_choice": False}}},
    ],
)
def test_findings_do_not_count_at_another_address_or_wire_format(
    provider: Provider, change: dict[str, Any]
):
    with ProbedHost("dies at images").listening() as base_url:
        row = probe(provider, base_url)
        provider.refresh_from_db()
        before = {name: getattr(provider, name) for name in change}
        Provider.objects.update(**change)
        model = LanguageModel.objects.select_related("provider").get()
        assert router.capabilities(model).vision is not False
        assert model.is_probe_outdated
        row.refresh_from_db()
        assert row.is_outdated
        Provider.objects.update(**before)
    model = LanguageModel.objects.select_related("provider").get()
    assert router.capabilities(model).vision is False


def test_other_headers_or_another_name_of_the_provider_leave_the_findings(
    provider: Provider,
):
    with ProbedHost("dies at images").listening() as base_url:
        probe(provider, base_url)
    Provider.objects.update(name="New", options={"headers": {"X-Team": "a"}})
    assert not LanguageModel.objects.get().is_probe_outdated


def test_findings_do_not_count_for_a_model_of_another_name(provider: Provider):
    host = ProbedHost("dies at images")
    with host.listening() as base_url:
        probe(provider, base_url)
        LanguageModel.objects.update(name="another")
        model = LanguageModel.objects.select_related("provider").get()
        assert router.capabilities(model).vision is not False
        # What the new probe cannot tell is not taken from the other model's.
        host.quirks = {"drops images"}
        probe(provider, base_url)
    model = LanguageModel.objects.select_related("provider").get()
    assert not model.is_probe_outdated
    assert "vision" not in model.findings
    assert model.findings["tools"] is True


def test_an_upgrade_takes_the_provider_as_it_is_for_what_was_probed(
    provider: Provider,
):
    migration = import_module("llm.migrations.0031_findings_and_values_of_lists")
    numbers = {"z": 1.5, "small": 1e-07, "large": 2**64, "a": "Größe"}
    provider.options = {"quirks": numbers, "headers": {"X-Team": "a"}}
    provider.base_url = "https://old.example/v1"
    provider.save()
    provider.models.create(name="never probed")
    provider.models.filter(name="m").update(probed_at=timezone.now())
    migration.name_targets(apps, None)
    probed = LanguageModel.objects.get(name="m")
    assert probed.probed_target == probed.probe_target
    assert LanguageModel.objects.get(name="never probed").probed_target is None


def test_a_key_works_at_a_host_that_renamed_the_limit_of_tokens(provider: Provider):
    with ProbedHost("renamed the limit").listening() as base_url:
        provider.base_url = base_url
        provider.save()
        provider.keys.create(secret=PLANTED)
        [finding] = key_check.probe(LanguageModel.objects.get())
    assert finding.works, finding.text
