"""Dictation in a real browser, whose microphone is a tone, and a host that writes down
what it is sent."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.conftest import StartServer
from tests.conversations.reading.speech_host import KEY, SPOKEN, SpeechHost, said
from tests.integration.browser.test_chat import signed_in, watched
from tests.serving import ServerProcess

pytestmark = [pytest.mark.browser, pytest.mark.slow]

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--use-fake-device-for-media-stream",
    "--use-fake-ui-for-media-stream",
]
MODEL = f"""
from llm.models import ApiKey, LanguageModel, Provider
row = Provider.objects.create(name="Speech", kind="openai_compatible",
    base_url="{{url}}", allow_private_network=True)
ApiKey.objects.create(provider=row, secret="{KEY}")
LanguageModel.objects.create(provider=row, name="whisper-1", alias="speech")
"""
#: Which microphones are open.
RECORDED = """
window.tracks = [];
const { mediaDevices } = navigator;
const real = mediaDevices.getUserMedia.bind(mediaDevices);
mediaDevices.getUserMedia = async (wish) => {
  const stream = await real(wish);
  tracks.push(...stream.getTracks());
  return stream;
};
"""
NO_MICROPHONE = """
navigator.mediaDevices.getUserMedia = () =>
  Promise.reject(new DOMException("denied", "NotAllowedError"));
"""


@pytest.fixture(scope="module")
def listening(full_chromium: str) -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=full_chromium, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def host() -> Iterator[SpeechHost]:
    with SpeechHost() as host:
        yield host


@contextmanager
def opened(
    browser: Browser, server: ServerProcess, script: str, *expected: str
) -> Iterator[Page]:
    """The chat, whose console has no other errors than those that are expected."""
    faults: list[str] = []
    with signed_in(browser, server) as context:
        page = watched(context, server.url, faults)
        page.add_init_script(script)
        page.goto("/")
        yield page
    assert [each for each in faults if not any(word in each for word in expected)] == []


@pytest.fixture
def server(start_server: StartServer, host: SpeechHost) -> ServerProcess:
    server = start_server(TRANSCRIPTION_MODEL="speech", DICTATION_MAX_SECONDS="2")
    server.manage("shell", "-c", MODEL.replace("{url}", host.url))
    return server


def test_what_is_spoken_comes_behind_what_is_written(
    listening: Browser, server: ServerProcess, host: SpeechHost
):
    with opened(listening, server, RECORDED) as page:
        assert "whisper-1" not in page.content()  # it is no model of a chat
        box = page.get_by_label("Message", exact=True)
        box.fill("Please:")
        button = page.get_by_role("button", name="Dictate")
        button.click()
        expect(button).to_have_attribute("aria-pressed", "true")
        assert page.evaluate("tracks.map((each) => each.readyState)") == ["live"]
        expect(page.locator("#announcer")).to_contain_text("Listening")
        button.click()
        expect(box).to_have_value(f"Please: {SPOKEN}")
        expect(button).to_have_attribute("aria-pressed", "false")
        assert page.evaluate("tracks.map((each) => each.readyState)") == ["ended"]
        name, _, data = host.forms[0]["file"]
        assert name == "speech.webm"
        assert data.startswith(b"\x1a\x45\xdf\xa3")
        assert page.locator(".turn").count() == 0  # nothing is sent


def test_a_recording_ends_by_itself(
    listening: Browser, server: ServerProcess, host: SpeechHost
):
    with opened(listening, server, RECORDED) as page:
        page.get_by_role("button", name="Dictate").click()
        box = page.get_by_label("Message", exact=True)
        expect(box).to_have_value(SPOKEN)
        assert page.evaluate("tracks.map((each) => each.readyState)") == ["ended"]


def test_an_error_is_told_and_what_was_written_stays(
    listening: Browser, server: ServerProcess, host: SpeechHost
):
    host.answer = (429, said("", error={"message": "slow down, sk-other"}))
    with opened(listening, server, RECORDED, "429") as page:
        box = page.get_by_label("Message", exact=True)
        box.fill("Please:")
        button = page.get_by_role("button", name="Dictate")
        button.click()
        expect(button).to_have_attribute("aria-pressed", "true")
        button.click()
        told = page.locator("#composer-errors [role=alert]")
        expect(told).to_contain_text("The provider's rate limit is reached")
        expect(box).to_have_value("Please:")
        host.answer = (200, said("It works."))
        button.click()
        expect(button).to_have_attribute("aria-pressed", "true")
        button.click()
        expect(box).to_have_value("Please: It works.")
        expect(told).to_have_count(0)


def test_a_microphone_that_is_not_allowed_is_told(
    listening: Browser, server: ServerProcess, host: SpeechHost
):
    with opened(listening, server, NO_MICROPHONE) as page:
        button = page.get_by_role("button", name="Dictate")
        button.click()
        told: Any = page.locator("#composer-errors [role=alert]")
        expect(told).to_contain_text("Is the microphone allowed?")
        expect(button).to_have_attribute("aria-pressed", "false")
        assert not host.forms


#: A browser whose recognition hears nothing: its microphone is not allowed.
DEAF = """
window.webkitSpeechRecognition = class {
  start() {
    setTimeout(() => {
      this.onerror({ error: "not-allowed" });
      this.onend();
    });
  }
};
"""


def test_a_browser_that_cannot_listen_says_so_above_the_message(
    listening: Browser, shared_server: ServerProcess
):
    with opened(listening, shared_server, DEAF) as page:
        button = page.get_by_role("button", name="Dictate")
        button.click()
        expect(page.locator("#composer-errors")).to_contain_text("could not listen")
        expect(button).to_have_attribute("aria-pressed", "false")
