"""Tool calls in plain text, of models without tools: `{"tool": name, "input": {...}}`.

Deltas go in; objects that call an available tool come out as tool calls, everything
else as text. `prompted_tools` instructs the model how to call.

Theory of `CallFilter`: text is passed on at once, except what may become a call:
blanks, the opening of a fence, and an object as long as its members are a `tool` that
is available and an `input` that is an object. Any other JSON is followed to its end, so
that nothing inside ordinary JSON or code becomes a call. An object is a call once only
blanks follow on its line, so an object quoted in a sentence is none. An unfinished
object at the end of the text is text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import ClassVar, Literal

from llm.wire.deltas import (
    AnnotationDelta,
    CloseDelta,
    Delta,
    FinishDelta,
    ItemDelta,
    Key,
    ProofDelta,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    ToolCallDelta,
)
from llm.wire.incremental_json import JsonReader, Member


class CallFilter:
    """Deltas in, deltas out; `close` returns those that were still held back."""

    __slots__ = ("_called", "_names", "_text")

    def __init__(self, names: Collection[str]) -> None:
        self._names = names
        self._text: _Text | None = None
        self._called = 0

    def feed(self, deltas: Sequence[Delta]) -> list[Delta]:
        out: list[Delta] = []
        for delta in deltas:
            if type(delta) is TextDelta and self._text and self._text.is_prose(delta):
                out.append(delta)  # the usual delta, without detours
            else:
                out += self._route(delta)
        return out

    def close(self) -> list[Delta]:
        if self._text is None:
            return []
        text, self._text = self._text, None
        out = text.close()
        self._called = text.called
        return out

    def _route(self, delta: Delta) -> list[Delta]:
        match delta:
            case TextDelta():
                return self._feed_text(delta)
            case ReasoningDelta(text="") | RefusalDelta(text=""):
                return [delta]
            case ReasoningDelta() | RefusalDelta() | ItemDelta() | ToolCallDelta():
                return [*self.close(), delta]
            case ProofDelta() | AnnotationDelta() if self._is_open(delta.key):
                assert self._text is not None
                self._text.notes = [*self._text.notes, delta]
                return []
            case CloseDelta() if self._is_open(delta.key):
                return [*self.close(), delta]
            case FinishDelta():
                return [*self.close(), self._finish(delta)]
        return [delta]

    def _feed_text(self, delta: TextDelta) -> list[Delta]:
        before: list[Delta] = []
        if not self._is_open(delta.key):
            before = self.close()
            self._text = _Text(delta.key, delta.phase, self._names, self._called)
        assert self._text is not None
        return before + self._text.feed(delta.text)

    def _is_open(self, key: Key) -> bool:
        return self._text is not None and self._text.key == key

    def _finish(self, delta: FinishDelta) -> FinishDelta:
        if self._called and delta.reason == "stop":
            return FinishDelta("tool_calls", delta.raw)
        return delta


_State = Literal["prose", "fence", "candidate", "json", "code", "after", "gap"]

#: A brace before anything but a blank or a quote does not begin an object with members.
_MARK = re.compile(r'[\[`]|\{(?![^\s"])')
_TICKS = re.compile(r"`*")
_BLANK = re.compile(r"\s*")
_REST_OF_LINE = re.compile(r"[ \t]*")
_FENCE = re.compile(r"([\w-]*)\s*", re.ASCII)
_FENCE_TICKS = 3
#: Limit on characters that wait for the text after them; without it they would be
#: scanned again with each delta.
_MAX_WAITING = 1_000
_MAX_FENCE = 40  # characters between a fence and its content
#: Languages of a fence that may contain a call.
_CALL_LANGUAGES = frozenset({"", "json", "tool", "tool_call", "tool_code"})
_IDLE = JsonReader()  # shared until an object begins
_MEMBERS = {'"tool"': '"', '"input"': "{"}  # with the first character of their values


class _Text:
    """One block of text. A character is handled once it is clear what it belongs to."""

    __slots__ = (
        "_buffer",
        "_fence",
        "_final",
        "_found_call",
        "_has_emitted",
        "_longest",
        "_names",
        "_object",
        "_out",
        "_pending",
        "_phase",
        "_reader",
        "_stage",
        "_state",
        "called",
        "key",
        "notes",
    )

    def __init__(
        self, key: Key, phase: str | None, names: Collection[str], called: int
    ) -> None:
        self.key = key
        self.called = called  # calls of this answer so far
        self.notes: Sequence[Delta] = ()  # deltas about the text, emitted after it
        self._phase = phase
        self._names = names
        # JSON may write a character as an escape of six characters.
        self._longest = max((6 * len(json.dumps(name)) for name in names), default=0)
        self._out: list[Delta] = []
        self._state: _State = "prose"
        self._buffer = ""  # not scanned yet
        self._final = False
        self._pending: list[str] = []  # scanned, and possibly the beginning of a call
        self._object = 0  # where the object begins in `_pending`
        self._fence = 0  # backticks of the fence we are in
        self._reader = _IDLE
        self._stage: tuple[int, ...] = ()  # parsing progress at the last check
        self._found_call = self._has_emitted = False  # emitted a call; emitted text

    def is_prose(self, delta: TextDelta) -> bool:
        """Whether `delta` belongs to this text and `feed` would pass it on
        unchanged."""
        text = delta.text
        if (
            self._state != "prose"
            or self._buffer
            or delta.key != self.key
            or delta.phase != self._phase
            or not text
            or text[-1].isspace()
            or _MARK.search(text)
        ):
            return False
        self._has_emitted = True
        return True

    def feed(self, text: str) -> list[Delta]:
        self._buffer += text
        position = 0
        while position < len(self._buffer) or self._state == "after":
            moved = self._STEPS[self._state](self, position)
            if moved is None:  # more text is needed to decide
                break
            position = moved
        self._buffer = self._buffer[position:]
        out, self._out = self._out, []
        return out

    def close(self) -> list[Delta]:
        self._final = True
        out = self.feed("")
        self._emit("".join(self._pending) + self._buffer)
        if not self._has_emitted and not self._found_call:
            self._out.append(TextDelta(self.key, "", self._phase))
        if not self._found_call:  # a signature of a text that we changed is invalid
            self._out += self.notes
        return out + self._out

    # Each step reads on from a position in the buffer and returns the next position, or
    # None if it needs more text.

    def _prose(self, position: int) -> int | None:
        mark = _MARK.search(self._buffer, position)
        end = mark.start() if mark else len(self._buffer)
        blank = position + len(self._buffer[position:end].rstrip())
        self._emit(self._buffer[position:blank])
        if mark is None:
            if len(self._buffer) - blank > _MAX_WAITING:
                return self._emit_to(len(self._buffer), blank)
            return blank if blank > position else None
        self._pending.append(self._buffer[blank:end])
        match mark[0]:
            case "{":
                self._begin("candidate")
            case "[":
                self._release()
                self._begin("json")
            case _:
                self._state = "fence"
        return end

    def _fence_on(self, position: int) -> int | None:
        """At backticks: the fence of a call, another fence, or inline code."""
        ticks = _ticks(self._buffer, position)
        end = position + ticks
        if end == len(self._buffer) and not self._final and ticks <= _MAX_WAITING:
            return None
        if ticks < _FENCE_TICKS or ticks > _MAX_WAITING:
            return self._leave_for("prose", end, position)
        opening = _FENCE.match(self._buffer, end)
        assert opening is not None
        is_short = len(opening[0]) <= _MAX_FENCE
        if is_short and opening.end() == len(self._buffer) and not self._final:
            return None
        self._fence = ticks
        if (
            is_short
            and opening[1].lower() in _CALL_LANGUAGES
            and self._buffer.startswith("{", opening.end())
        ):
            self._pending.append(self._buffer[position : opening.end()])
            self._begin("candidate")
            return opening.end()
        return self._leave_for("code", end, position)

    def _begin(self, state: _State) -> None:
        """Begin reading an object or an array."""
        self._state, self._reader = state, JsonReader()
        self._object, self._stage = len(self._pending), ()

    def _candidate(self, position: int) -> int:
        end = self._reader.feed(self._buffer, position)
        self._pending.append(self._buffer[position:end])
        if self._reader.is_broken or not self._may_be_call():
            self._release()
            self._state = "json"  # where it is followed to its end
        elif self._reader.is_whole:
            self._state = "after"
        return end

    def _json(self, position: int) -> int:
        if not (self._reader.is_whole or self._reader.is_broken):
            end = self._reader.feed(self._buffer, position)
            self._emit(self._buffer[position:end])
            position = end
        if self._reader.is_whole or self._reader.is_broken:
            self._state = "code" if self._fence else "prose"
        return position

    def _code(self, position: int) -> int | None:
        """Inside a fence that does not hold a call."""
        start = self._buffer.find("`" * self._fence, position)
        if start < 0 and not self._final:
            start = len(self._buffer.rstrip("`"))
        if start < 0:
            return self._emit_to(len(self._buffer), position)
        end = start + _ticks(self._buffer, start)
        if end == len(self._buffer) and not self._final and end - start <= _MAX_WAITING:
            return self._emit_to(start, position) if start > position else None
        self._fence = 0
        return self._leave_for("prose", end, position)

    def _after(self, position: int) -> int | None:
        """After an object that calls a tool, if the rest of its line is blank."""
        rest = _REST_OF_LINE.match(self._buffer, position)
        assert rest is not None
        follows = self._buffer[rest.end() : rest.end() + 1]
        if not follows and not self._final and len(rest[0]) <= _MAX_WAITING:
            return None
        allowed = "\r\n{`" if self._fence else "\r\n{"
        if follows and follows not in allowed:
            self._release()
            self._state = "code" if self._fence else "prose"
            return position
        self._call()
        self._state = "gap"
        return rest.end()

    def _gap(self, position: int) -> int | None:
        """After a call: blanks and a closing fence are dropped."""
        blank = _BLANK.match(self._buffer, position)
        assert blank is not None
        position = blank.end()
        if position == len(self._buffer):
            return position
        if self._fence and self._buffer[position] == "`":
            ticks = _ticks(self._buffer, position)
            if position + ticks == len(self._buffer) and not self._final:
                return None
            self._fence = 0
            return position + ticks
        if self._buffer[position] == "{":
            self._begin("candidate")
        else:
            self._fence, self._state = 0, "prose"
        return position

    _STEPS: ClassVar[Mapping[_State, Callable[[_Text, int], int | None]]] = {
        "prose": _prose,
        "fence": _fence_on,
        "candidate": _candidate,
        "json": _json,
        "code": _code,
        "after": _after,
        "gap": _gap,
    }

    # Held-back and emitted text

    def _may_be_call(self) -> bool:
        """Whether the object, as far as it is read, can be a call of an available
        tool."""
        members = self._reader.members
        if self._reader.is_whole and len(members) != len(_MEMBERS):
            return False
        if not members:
            return True
        last = members[-1]
        stage = (len(members), last.key_end, last.value, last.value_end)
        if stage != self._stage:  # a key or a value has begun or ended
            self._stage = stage
            if not self._fits("".join(self._pending[self._object :])):
                return False
        return self._may_grow(last)

    def _may_grow(self, last: Member) -> bool:
        """False for a key or a name that has become too long."""
        if not last.key_end:
            return self._reader.size - last.key <= max(map(len, _MEMBERS))
        is_name = last.key_end - last.key == len('"tool"')
        if is_name and last.value and not last.value_end:
            return self._reader.size - last.value <= self._longest
        return True

    def _fits(self, text: str) -> bool:
        members = self._reader.members
        keys = [text[m.key : m.key_end] for m in members if m.key_end]
        if len(set(keys)) < len(keys) or not set(keys) <= _MEMBERS.keys():
            return False
        for key, member in zip(keys, members, strict=False):
            value = text[member.value : member.value_end or None]
            if member.value and not value.startswith(_MEMBERS[key]):
                return False
            named = key == '"tool"' and member.value_end
            if named and json.loads(value) not in self._names:
                return False
        return len(members) <= len(_MEMBERS)

    def _call(self) -> None:
        text = "".join(self._pending[self._object :])
        parts = {text[m.key : m.key_end]: m for m in self._reader.members}
        tool, input_member = parts['"tool"'], parts['"input"']
        name = json.loads(text[tool.value : tool.value_end])
        arguments = text[input_member.value : input_member.value_end]
        self.called += 1
        key = ("prompted", self.called)
        self._out.append(ToolCallDelta(key, name=name, arguments=arguments))
        self._out.append(CloseDelta(key))
        self._pending.clear()
        self._found_call = True

    def _leave_for(self, state: _State, end: int, position: int) -> int:
        self._release()
        self._state = state
        return self._emit_to(end, position)

    def _emit_to(self, end: int, position: int) -> int:
        self._emit(self._buffer[position:end])
        return end

    def _release(self) -> None:
        self._emit("".join(self._pending))
        self._pending.clear()

    def _emit(self, text: str) -> None:
        if text:
            self._has_emitted = True
            self._out.append(TextDelta(self.key, text, self._phase))


def _ticks(text: str, position: int) -> int:
    """The number of backticks at `position`."""
    found = _TICKS.match(text, position)
    assert found is not None
    return found.end() - position
