from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from typing import Any

import pytest

from tools.errors import ToolError
from tools.execution.output import render_output
from tools.mcp.results import result_of


def read_result(*content: Mapping[str, Any], **more: Any) -> Any:
    return result_of({"content": list(content), **more})


def text(words: str) -> dict[str, str]:
    return {"type": "text", "text": words}


DATA = b64encode(b"12345").decode()


def test_texts_are_one_text():
    assert read_result(text("a"), text("b")) == "a\n\nb"


def test_structured_content_is_included_once():
    value = {"n": 1}
    assert read_result(text('{ "n": 1 }'), structuredContent=value) == '{ "n": 1 }'
    assert read_result(structuredContent=value) == '{"n":1}'
    assert read_result(text("one"), structuredContent=value) == 'one\n\n{"n":1}'
    assert read_result(structuredContent=None) == "null"


def test_large_integers_stay_exact():
    """Amounts in wei, 128-bit ids: the call took effect, so it must not fail."""
    value = {"wei": 2**70}
    written = f'{{"wei":{2**70}}}'
    assert read_result(structuredContent=value) == written
    assert read_result(text(written), structuredContent=value) == written
    other = written.replace("1", "2", 1)
    assert read_result(text(other), structuredContent=value) == f"{other}\n\n{written}"


@pytest.mark.parametrize(
    ("texts", "result"),
    [
        (["sunny"], "sunny"),
        ([""], ""),
        (["5"], 5),
        (["5"], "5"),
        (["true"], True),
        (["a", "b"], ["a", "b"]),
        (["a", '{"n":1}'], ["a", {"n": 1}]),
        (['["a","b"]'], ["a", "b"]),
        (["null"], None),
    ],
)
def test_content_wrapped_by_fastmcp_is_included_once(texts: list[str], result: Any):
    result_read = read_result(*map(text, texts), structuredContent={"result": result})
    assert result_read == "\n\n".join(texts)


def test_different_structured_content_is_included_too():
    result_read = read_result(text("sunny"), structuredContent={"result": "rain"})
    assert result_read == 'sunny\n\n{"result":"rain"}'


def test_an_error_is_raised_in_the_tools_words():
    with pytest.raises(ToolError, match="no such city"):
        read_result(text("no such city"), isError=True)
    with pytest.raises(ToolError, match="the tool failed"):
        read_result(isError=True)


def test_pictures_are_shown_and_what_no_model_sees_is_described():
    [picture, odd, sound] = read_result(
        {"type": "image", "mimeType": "image/png", "data": DATA},
        {"type": "image", "mimeType": "image/tiff", "data": DATA},
        {"type": "audio", "mimeType": "audio/wav", "data": DATA},
    )
    assert picture["image_url"] == f"data:image/png;base64,{DATA}"
    assert odd["text"] == "[An image of the type image/tiff, 5 bytes, not shown.]"
    assert sound["text"] == "[Audio of the type audio/wav, 5 bytes, not shown.]"


def test_resources_are_included_with_their_address():
    link = {
        "type": "resource_link",
        "uri": "file:///a.txt",
        "name": "a",
        "mimeType": "text/plain",
        "description": "The first.",
    }
    assert read_result(link) == "[Resource: a](file:///a.txt) (text/plain)\nThe first."
    inner = {"uri": "file:///a.txt", "text": "hello"}
    assert read_result({"type": "resource", "resource": inner}) == (
        "[Resource: file:///a.txt]\n\nhello"
    )
    pdf = {"uri": "file:///a.pdf", "mimeType": "application/pdf", "blob": DATA}
    [_, file] = read_result({"type": "resource", "resource": pdf})
    assert file["filename"] == "a.pdf"
    assert render_output([file]).output == [file]


def test_unknown_kinds_of_content_are_mentioned():
    assert (
        read_result({"type": "hologram"})
        == "[Content of the type 'hologram' cannot be shown.]"
    )
