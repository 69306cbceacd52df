"""Dictation: a recording becomes text, by the model that staff name for it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from conversations.models import AccessToken
from conversations.models.user_settings import UserSettings
from llm import router
from llm.models import ApiKey, LanguageModel, ModelCall, Provider
from tests.conversations.reading.speech_host import KEY, SPOKEN, SpeechHost, said
from tests.conversations.scene import a_user, program, signed_in

pytestmark = pytest.mark.django_db

WEBM = b"\x1a\x45\xdf\xa3" + b"\0" * 500
KINDS = {
    "webm": WEBM,
    "ogg": b"OggS" + b"\0" * 50,
    "wav": b"RIFF\x24\0\0\0WAVEfmt ",
    "mp4": b"\0\0\0\x18ftypmp42",
    "mp3": b"ID3\x04" + b"\0" * 50,
    "flac": b"fLaC" + b"\0" * 50,
}


@pytest.fixture
def host() -> Iterator[SpeechHost]:
    with SpeechHost() as host:
        yield host


@pytest.fixture(autouse=True)
def model(host: SpeechHost, settings: Any) -> LanguageModel:
    settings.TRANSCRIPTION_MODEL = "speech"
    provider = Provider.objects.create(
        name="Speech",
        kind="openai_compatible",
        base_url=host.url,
        allow_private_network=True,
    )
    ApiKey.objects.create(provider=provider, secret=KEY)
    return LanguageModel.objects.create(
        provider=provider,
        name="gpt-4o-transcribe",
        alias="speech",
        prices={"input": 6, "output": 10},
    )


@pytest.fixture
def ada() -> Any:
    return a_user("ada")


@pytest.fixture
def web(ada: Any) -> Client:
    return signed_in(ada)


def send(web: Any, data: bytes = WEBM, name: str = "speech", **headers: Any) -> Any:
    file = SimpleUploadedFile(name, data, "audio/webm;codecs=opus")
    return web.post(reverse("api:dictation"), {"file": file}, **headers)


def error_of(answer: Any) -> dict[str, Any]:
    error: dict[str, Any] = answer.json()["error"]
    return error


def test_a_recording_becomes_text_and_a_row_with_its_cost(
    web: Client, ada: Any, host: SpeechHost
):
    answer = send(web)
    assert (answer.status_code, answer.json()) == (200, {"text": SPOKEN})
    assert host.keys == [f"Bearer {KEY}"]
    assert host.forms == [
        {
            "model": "gpt-4o-transcribe",
            "response_format": "json",
            "file": ("speech.webm", "audio/webm", WEBM),
        }
    ]
    row = ModelCall.objects.get()
    assert (row.purpose, row.status, row.http_status) == ("dictation", "completed", 200)
    assert (row.input_tokens, row.output_tokens) == (14, 9)
    assert row.cost == Decimal("0.000174")
    assert (row.user_id, row.request_id) == (ada.pk, "req-speech")
    assert row.latency is not None


@pytest.mark.parametrize("kind", KINDS)
def test_the_bytes_decide_the_kind(web: Client, host: SpeechHost, kind: str):
    assert send(web, KINDS[kind], "evil/../name.exe\r\nX: y").status_code == 200
    name, content_type, data = host.forms[0]["file"]
    assert (name, data) == (f"speech.{kind}", KINDS[kind])
    assert content_type.startswith("audio/")


@pytest.mark.parametrize(
    ("data", "status", "words"),
    [
        (b"<html>", 400, "no recording"),
        (b"PK\x03\x04", 400, "no recording"),
        (WEBM + b"\0" * 2000, 400, "too long"),
        (WEBM + b"\0" * 200_000, 413, "at most"),
    ],
)
def test_what_is_no_recording_is_not_sent(
    web: Client,
    host: SpeechHost,
    settings: Any,
    data: bytes,
    status: int,
    words: str,
):
    settings.DICTATION_MAX_SIZE = 1000
    answer = send(web, data)
    assert answer.status_code == status
    assert words in error_of(answer)["message"]
    assert not host.forms
    assert not ModelCall.objects.exists()


def test_a_form_without_a_file_is_refused(web: Client):
    answer = web.post(reverse("api:dictation"), {"other": "x"})
    assert (answer.status_code, error_of(answer)["param"]) == (400, "file")


@pytest.mark.parametrize(
    ("reply", "status", "code"),
    [
        ((401, b'{"error": {"message": "bad key sk-secret"}}'), 502, "invalid_key"),
        ((429, b"{}"), 429, "rate_limit"),
        ((500, b"<html>"), 503, "provider_down"),
        ((200, b"<html>"), 502, "bad_response"),
        ((200, said(None)), 502, "bad_response"),
        ((200, b"[1]"), 502, "bad_response"),
        ((302, b""), 502, "bad_response"),
    ],
)
def test_an_error_of_the_provider_is_told_in_words_and_recorded(
    web: Client,
    host: SpeechHost,
    reply: tuple[int, bytes],
    status: int,
    code: str,
):
    host.answer = reply
    answer = send(web)
    assert answer.status_code == status
    message = error_of(answer)["message"]
    assert message.endswith(".")
    assert "sk-" not in answer.content.decode()
    row = ModelCall.objects.get()
    assert (row.status, row.purpose) == ("failed", "dictation")
    assert code in row.error_code.lower()


def test_a_hostile_text_is_made_harmless(web: Client, host: SpeechHost):
    host.answer = (
        200,
        b'{"text": " a\\u0000b\\ud800 ", "usage": {"input_tokens": -1}}',
    )
    assert send(web).json() == {"text": "a\ufffdb\ufffd"}
    assert ModelCall.objects.get().input_tokens is None


def test_silence_is_no_error(web: Client, host: SpeechHost):
    host.answer = (200, said("  "))
    assert send(web).json() == {"text": ""}


# Who may


def test_without_a_model_nobody_dictates_and_the_browser_listens(
    web: Client, settings: Any
):
    settings.TRANSCRIPTION_MODEL = ""
    assert send(web).status_code == 404
    assert 'id="dictate"' in web.get("/").text
    assert reverse("api:dictation") not in web.get("/").text


def test_a_model_of_a_group_is_for_the_group(ada: Any, model: LanguageModel):
    model.groups.add(group := Group.objects.create(name="speakers"))
    eve = signed_in(a_user("eve"))
    answer = send(eve)
    assert answer.status_code == 404
    assert reverse("api:dictation") not in eve.get("/").text
    ada.groups.add(group)
    assert send(signed_in(ada)).status_code == 200
    assert reverse("api:dictation") in signed_in(ada).get("/").text


def test_nobody_dictates_without_signing_in():
    assert send(Client()).status_code == 401
    assert not ModelCall.objects.exists()


def test_the_model_is_no_model_of_a_chat(ada: Any, model: LanguageModel):
    assert model not in router.available(ada)
    assert model not in router.available(None)


def test_a_program_dictates_unless_its_token_has_a_budget(ada: Any):
    tool = program(ada)
    assert send(tool).status_code == 200
    row = ModelCall.objects.get()
    assert row.token_id == AccessToken.objects.get().pk
    AccessToken.objects.update(budget=1)
    assert send(tool).status_code == 403
    assert ModelCall.objects.count() == 1


def test_a_user_dictates_once_at_a_time(web: Client, ada: Any, host: SpeechHost):
    """In all processes: the row says that one of them is at work."""
    until = timezone.now() + timedelta(minutes=1)
    assert UserSettings.objects.begin_dictation(ada.pk, until)
    answer = send(web)
    assert answer.status_code == 429
    assert send(signed_in(a_user("eve"))).status_code == 200
    UserSettings.objects.end_dictation(ada.pk, until)
    assert send(web).status_code == 200
    assert send(web).status_code == 200  # the last one has ended its own
    assert len(host.forms) == 3


def test_a_dictation_whose_process_ended_stops_no_other(web: Client, ada: Any):
    ended = timezone.now() - timedelta(seconds=1)
    UserSettings.objects.begin_dictation(ada.pk, ended)
    assert send(web).status_code == 200


def test_a_dictation_that_took_too_long_does_not_end_the_next_one(ada: Any):
    rows, now = UserSettings.objects, timezone.now()
    first, second = now - timedelta(seconds=1), now + timedelta(minutes=1)
    assert rows.begin_dictation(ada.pk, first)
    assert rows.begin_dictation(ada.pk, second)
    rows.end_dictation(ada.pk, first)
    assert not rows.begin_dictation(ada.pk, second)


def test_a_host_of_another_form_has_no_transcription(web: Client, model: LanguageModel):
    Provider.objects.update(kind="anthropic")
    answer = send(web)
    assert answer.status_code == 404
    assert "no transcription" in error_of(answer)["message"]


def test_the_key_is_nowhere_in_the_answer(web: Client, host: SpeechHost, caplog: Any):
    host.answer = (400, json.dumps({"error": {"message": f"no {KEY}"}}).encode())
    answer = send(web)
    assert KEY not in answer.content.decode() + caplog.text
    assert KEY not in ModelCall.objects.get().error_detail
