from __future__ import annotations

import base64
import tracemalloc
from typing import Any

import pytest

from llm.providers.gemini import PROVIDER as GEMINI
from llm.wire.codec import Codec
from llm.wire.codecs.anthropic.codec import AnthropicCodec
from llm.wire.codecs.file_data import FileData, plain_audio, read_file
from llm.wire.codecs.openai_chat.codec import OpenAIChatCodec
from llm.wire.request import Request

TEXT = "Grüße"
GEMINI_CODEC = next(iter(GEMINI.codecs.values()))


def encoded(charset: str, text: str = TEXT) -> str:
    return base64.b64encode(text.encode(charset)).decode()


def sent(codec: Codec, **part: Any) -> dict[str, Any]:
    item = user_message([{"type": "input_file", **part}])
    return codec.encode(Request(model="m", items=[item]))


def user_message(content: list[dict[str, Any]]) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": content}


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (f"data:text/plain;base64,{encoded('utf-8')}", ""),
        (f"DATA:text/csv;charset=iso-8859-1;base64,{encoded('latin-1')}", "a.csv"),
        (f"data:text/csv;base64,{encoded('cp1252')}", "a.csv"),
        (f"data:text/plain;base64,{encoded('utf-16')}", "a.txt"),
        (f"data:text/plain;charset=big-nonsense;base64,{encoded('utf-8')}", "a.txt"),
        (f"data:application/octet-stream;base64,{encoded('utf-8')}", "a.py"),
        (encoded("utf-8"), "a.txt"),
        ("data:text/plain,Gr%C3%BC%C3%9Fe", ""),
    ],
)
def test_every_host_gets_the_text_of_a_text_file(data, name):
    part = {"file_data": data, "filename": name}
    [message] = sent(OpenAIChatCodec(), **part)["messages"]
    assert message["content"] == f"{name or 'file'}:\n\n{TEXT}"
    [message] = sent(AnthropicCodec(), **part)["messages"]
    assert message["content"][0]["source"] == {
        "type": "text",
        "media_type": "text/plain",
        "data": TEXT,
    }
    [content] = sent(GEMINI_CODEC, **part)["contents"]
    inline = content["parts"][0]["inlineData"]
    assert inline["mimeType"].startswith("text/")
    assert base64.b64decode(inline["data"]).decode() == TEXT


def test_a_host_of_files_gets_base64_as_a_data_url():
    part = {"file_data": "JVBERi0=", "filename": "a.pdf"}
    [message] = sent(OpenAIChatCodec(files=True), **part)["messages"]
    assert message["content"][0]["file"] == {
        "filename": "a.pdf",
        "file_data": "data:application/pdf;base64,JVBERi0=",
    }


@pytest.mark.parametrize("head", ["", "data:application/pdf;base64,"])
def test_no_host_gets_line_breaks_in_base64(head: str):
    content = b"%PDF-1.7" * 100
    clean = base64.b64encode(content).decode()
    data = head + base64.encodebytes(content).decode().replace("\n", "\r\n")
    part = {"file_data": data, "filename": "a.pdf"}
    [message] = sent(OpenAIChatCodec(files=True), **part)["messages"]
    url = f"data:application/pdf;base64,{clean}"
    assert message["content"][0]["file"]["file_data"] == url
    [message] = sent(AnthropicCodec(), **part)["messages"]
    assert message["content"][0]["source"]["data"] == clean
    [sent_content] = sent(GEMINI_CODEC, **part)["contents"]
    assert sent_content["parts"][0]["inlineData"]["data"] == clean
    assert read_file(data, "a.pdf").content() == content


def test_no_picture_has_line_breaks_in_its_base64():
    url = "data:image/png;base64,iVBO\r\nRw0K"
    part = {"type": "input_image", "image_url": url}
    request = Request(model="m", items=[user_message([part])])
    [message] = OpenAIChatCodec().encode(request)["messages"]
    assert message["content"][0]["image_url"]["url"].endswith(",iVBORw0K")
    [message] = AnthropicCodec().encode(request)["messages"]
    assert message["content"][0]["source"]["data"] == "iVBORw0K"


def test_base64_in_many_words_costs_little_memory():
    data = "AA \n" * 1_000_000
    tracemalloc.start()
    assert read_file(data, "a.pdf").content()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 3 * len(data)


@pytest.mark.parametrize(
    "data", [b"\0\xff", b"\x89PNG\r\n\x1a\n\0"], ids=["NUL", "an image"]
)
def test_what_is_no_text_has_none(data: bytes):
    assert FileData("text/plain", base64.b64encode(data).decode()).text() is None
    assert FileData("text/plain", "%").text() is None


@pytest.mark.parametrize("charset", ["punycode", "idna", "rot13", "unicode_escape"])
def test_codecs_that_are_no_charset_are_not_used(charset):
    url = f"data:text/plain;charset={charset};base64,{encoded('utf-8', 'a-b')}"
    assert read_file(url).text() == "a-b"


@pytest.mark.parametrize("data", ["UklG\r\nUklG", "data:audio/wav;base64,UklGUklG"])
def test_sound_leaves_as_bare_base64(data: str):
    sound = {"format": "wav", "data": data}
    assert plain_audio(sound) == {"format": "wav", "data": "UklGUklG"}
    assert plain_audio(data) == "UklGUklG"
    assert plain_audio({"id": 1}) == {"id": 1}
