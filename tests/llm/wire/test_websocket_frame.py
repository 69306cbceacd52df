from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.frames import Frame, Opcode

from llm.wire.websocket_frame import frame, text_head


@given(st.text())
def test_a_text_is_framed_as_the_library_frames_it(text: str):
    data = text.encode()
    library = Frame(Opcode.TEXT, data).serialize(mask=False)
    assert frame(data) == text_head(len(data)) + data == bytes(library)


@pytest.mark.parametrize("size", [0, 125, 126, 127, 65_535, 65_536, 70_000])
def test_at_each_border_of_its_length(size: int):
    data = bytes(size)
    library = Frame(Opcode.BINARY, data).serialize(mask=False)
    assert frame(data, binary=True) == bytes(library)
