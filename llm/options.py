"""Validation of request options against the capabilities of a model.

In: a `Request` and the model's `Capabilities`. Out: the request that the model accepts,
and what was changed. An option that the model does not accept is refused with a
BadRequest that names the option, the model and the legal values, or, if the caller
chose so, left out and reported. Two things never fail a request:

* hints that change little if they are ignored (`seed`, verbosity, parallel calls): they
  are always left out and reported,
* content of the history: an image shown to an earlier model or drawn by a tool. A
  placeholder text replaces it.

An option whose support is unknown is sent, and the provider decides.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from llm import hosted
from llm.capabilities import EFFORTS, Capabilities
from llm.errors import BadRequest
from llm.wire.codec import Codec
from llm.wire.codecs.dialects import is_forced
from llm.wire.items import Item, message
from llm.wire.past import holds
from llm.wire.request import Request


@dataclass(frozen=True, slots=True)
class Fitted:
    """`dropped` names what was left out or changed, such as "temperature" or
    "reasoning.effort (max → high)"."""

    request: Request
    dropped: tuple[str, ...] = ()


def fit(
    request: Request,
    capabilities: Capabilities,
    *,
    model_name: str,
    ignore_invalid: bool = False,
    codec: Codec | None = None,
) -> Fitted:
    """Adapt `request` to the model and to the wire format of `codec`.

    Raises BadRequest for an option that the model does not accept, unless
    `ignore_invalid`.
    """
    fitting = _Fitting(request, capabilities, model_name, ignore_invalid, codec)
    for check in _CHECKS:
        check(fitting)
    return Fitted(fitting.request, tuple(dict.fromkeys(fitting.dropped)))


def degraded(codec: Codec, request: Request) -> tuple[str, ...]:
    """What this wire format can only approximate; () if the codec reports nothing."""
    tell = getattr(codec, "degraded", None)
    return tuple(tell(request)) if tell else ()


def nearest_effort(effort: str, legal: Sequence[str]) -> str | None:
    """The legal effort closest to `effort`: lower rather than higher, but not "none" if
    there is another. None if none is legal."""
    if effort in legal or not legal:
        return effort if legal else None
    ranked = sorted(legal, key=EFFORTS.index)
    rank = EFFORTS.index(effort) if effort in EFFORTS else len(EFFORTS)
    below = [e for e in ranked if e != "none" and EFFORTS.index(e) < rank]
    above = [e for e in ranked if e != "none" and EFFORTS.index(e) > rank]
    return below[-1] if below else above[0] if above else ranked[0]


def question_at(items: Sequence[Item]) -> int:
    """The index of the first item after the last one that a model or a tool wrote."""
    for number in range(len(items), 0, -1):
        if not _is_asked(items[number - 1]):
            return number
    return 0


class _Fitting:
    """The state of one request during the checks."""

    def __init__(
        self,
        request: Request,
        can: Capabilities,
        model_name: str,
        ignore: bool,
        codec: Codec | None,
    ) -> None:
        self.request = request
        self.can = can
        self.ignore = ignore
        self.codec = codec
        self.dropped: list[str] = []
        self._model_name = model_name

    def refuse(
        self, option: str, why: str, *, legal: str, became: Any = None, **instead: Any
    ) -> None:
        """Raise BadRequest; with `ignore`, set the fields `instead` and report it."""
        if not self.ignore:
            raise BadRequest(
                f"The model {self._model_name!r} {why}; {legal}.", param=option
            )
        self.give_way(option, became=became, **instead)

    def give_way(self, option: str, *, became: Any = None, **instead: Any) -> None:
        self.request = replace(self.request, **instead)
        self.dropped.append(option if became is None else f"{option} ({became})")

    @property
    def effort(self) -> str | None:
        return (self.request.reasoning or {}).get("effort")

    @property
    def reasons(self) -> bool | None:
        return self.can.reasons(self.effort)


# Tools


def _tools(fitting: _Fitting) -> None:
    if fitting.can.tools is False and fitting.request.tools:
        fitting.refuse(
            "tools",
            "takes no 'tools'",
            legal="leave them out",
            tools=(),
            tool_choice=None,
            parallel_tool_calls=None,
        )


def _hosted_tools(fitting: _Fitting) -> None:
    """Check for hosted tools that the provider does not support as declared."""
    functions = [t for t in fitting.request.tools if not hosted.is_hosted(t)]
    for tool in fitting.request.tools:
        if not hosted.is_hosted(tool):
            continue
        why = hosted.takes(
            fitting.codec,
            fitting.can,
            tool,
            model=fitting.request.model,
            beside=functions,
        )
        if why is None:
            continue
        kind = tool.get("type")
        fitting.refuse(
            "tools",
            f"cannot be given the tool {kind!r}",
            legal=why[:1].lower() + why[1:].removesuffix("."),
            became=f"without {kind}",
            **_without(fitting.request, tool),
        )


def _without(request: Request, tool: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a request without this tool."""
    tools = [each for each in request.tools if each is not tool]
    if not tools:
        return {"tools": (), "tool_choice": None, "parallel_tool_calls": None}
    choice, kind = request.tool_choice, hosted.kind_of(tool)
    if isinstance(choice, Mapping):
        named = choice.get("tools") if choice.get("type") == "allowed_tools" else None
        if named is not None:
            left = [t for t in named if hosted.kind_of(t) != kind or kind is None]
            choice = {**choice, "tools": left} if left else "none"
        elif kind is not None and hosted.kind_of(choice) == kind:
            choice = "auto"
    return {"tools": tools, "tool_choice": choice}


def _tool_choice(fitting: _Fitting) -> None:
    can, request = fitting.can, fitting.request
    if not request.tools or not is_forced(request.tool_choice):
        return
    instead = _unforced(request.tool_choice)
    legal = "'tool_choice' may be 'auto' or 'none'"
    if can.forced_tools is False:
        fitting.refuse(
            "tool_choice",
            "cannot be made to call a tool",
            legal=legal,
            tool_choice=instead,
        )
    elif can.forced_while_reasoning is False and fitting.reasons:
        fitting.refuse(
            "tool_choice",
            "cannot be made to call a tool while it reasons",
            legal=legal + _or_no_reasoning(can),
            tool_choice=instead,
        )


def _unforced(choice: Any) -> Any:
    if isinstance(choice, Mapping) and choice.get("type") == "allowed_tools":
        return {**choice, "mode": "auto"}
    return "auto"


def _parallel_calls(fitting: _Fitting) -> None:
    if fitting.can.parallel_tools is False and fitting.request.parallel_tool_calls:
        fitting.give_way("parallel_tool_calls", parallel_tool_calls=None)


# Reasoning and sampling


def _reasoning(fitting: _Fitting) -> None:
    can, effort = fitting.can, fitting.effort
    if not fitting.request.reasoning:
        return
    if can.reasoning is False:
        _no_reasoning(fitting)
    elif effort and can.efforts is not None and effort not in can.efforts:
        _effort(fitting, effort, can.efforts)


def _no_reasoning(fitting: _Fitting) -> None:
    """Asking such a model not to reason, or for a summary, is not an error."""
    if fitting.effort == "none":
        fitting.request = replace(fitting.request, reasoning=None)
    elif fitting.effort is None:
        fitting.give_way("reasoning", reasoning=None)
    else:
        fitting.refuse(
            "reasoning.effort",
            "does not reason",
            legal="leave 'reasoning' out",
            reasoning=None,
        )


def _effort(fitting: _Fitting, effort: str, legal: Sequence[str]) -> None:
    rest = {k: v for k, v in (fitting.request.reasoning or {}).items() if k != "effort"}
    if not legal:
        fitting.refuse(
            "reasoning.effort",
            "reasons as it sees fit and takes no 'reasoning.effort'",
            legal="leave it out",
            reasoning=rest or None,
        )
        return
    near = nearest_effort(effort, legal)
    fitting.refuse(
        "reasoning.effort",
        f"does not take the 'reasoning.effort' {effort!r}",
        legal=f"it may be {_either(legal)}",
        became=f"{effort} → {near}",
        reasoning={**rest, "effort": near},
    )


#: Options that a model may refuse while it reasons, and the capability of each.
_SAMPLING: Mapping[str, str | None] = {
    "temperature": None,
    "top_p": None,
    "presence_penalty": "penalties",
    "frequency_penalty": "penalties",
    "top_logprobs": "logprobs",
}


def _sampling(fitting: _Fitting) -> None:
    can = fitting.can
    for option, own_field in _SAMPLING.items():
        value = getattr(fitting.request, option)
        if value is None or (own_field and not value):
            continue  # a penalty of 0 has no effect
        why, legal = f"does not take {option!r}", "leave it out"
        if can.sampling == "without_reasoning" and fitting.reasons:
            why, legal = f"{why} while it reasons", legal + _or_no_reasoning(can)
        elif can.sampling != "never" and not _is_denied(can, own_field):
            continue
        fitting.refuse(option, why, legal=legal, **{option: None})


def _is_denied(can: Capabilities, field: str | None) -> bool:
    return field is not None and getattr(can, field) is False


def _temperature(fitting: _Fitting) -> None:
    wanted, most = fitting.request.temperature, fitting.can.max_temperature
    if wanted is not None and most is not None and wanted > most:
        fitting.refuse(
            "temperature",
            f"does not take a 'temperature' of {wanted:g}",
            legal=f"it may be from 0 to {most:g}",
            became=f"{wanted:g} → {most:g}",
            temperature=most,
        )


def _stop(fitting: _Fitting) -> None:
    if fitting.can.stop is False and fitting.request.stop:
        fitting.refuse("stop", "does not take 'stop'", legal="leave it out", stop=())


def _seed(fitting: _Fitting) -> None:
    if fitting.can.seed is False and fitting.request.seed is not None:
        fitting.give_way("seed", seed=None)


def _or_no_reasoning(can: Capabilities) -> str:
    if can.efforts and "none" in can.efforts:
        return ", or set 'reasoning.effort' to 'none'"
    if can.default_effort == "none":
        return ", or leave 'reasoning' out"
    return ""


# The answer


def _length(fitting: _Fitting) -> None:
    wanted, most = fitting.request.max_output_tokens, fitting.can.max_output_tokens
    if wanted is not None and most is not None and wanted > most:
        fitting.refuse(
            "max_output_tokens",
            f"cannot write {wanted} tokens",
            legal=f"'max_output_tokens' may be {most} at most",
            became=f"{wanted} → {most}",
            max_output_tokens=most,
        )


def _form(fitting: _Fitting) -> None:
    can, text = fitting.can, dict(fitting.request.text or {})
    form = text.pop("format", None) or {}
    kind = form.get("type")
    if kind not in ("json_schema", "json_object") or kind in (legal := _forms(can)):
        return
    why = {
        "json_schema": "takes no JSON Schema for its answer",
        "json_object": "has no JSON mode",
    }[kind]
    as_object = kind == "json_schema" and can.json_mode is True
    if as_object:
        text["format"] = {"type": "json_object"}
    fitting.refuse(
        "text.format",
        why,
        legal=f"'text.format' may be of the type {_either(legal)}",
        became="json_schema → json_object" if as_object else None,
        text=text or None,
    )


def _forms(can: Capabilities) -> list[str]:
    """The types of `text.format` that are supported or unknown."""
    asked = {"json_object": can.json_mode, "json_schema": can.json_schema}
    return ["text", *(name for name, takes in asked.items() if takes is not False)]


def _verbosity(fitting: _Fitting) -> None:
    text = dict(fitting.request.text or {})
    if fitting.can.verbosity is False and text.pop("verbosity", None) is not None:
        fitting.give_way("text.verbosity", text=text or None)


# The input


@dataclass(frozen=True, slots=True)
class _Sight:
    """A kind of input that a model may not support."""

    part_type: str
    field: str  # name of a field of Capabilities
    why: str
    legal: str
    stand_in: str


_SIGHTS = (
    _Sight(
        "input_image",
        "vision",
        "cannot see images",
        "leave them out of 'input' or choose another model",
        "[An image stood here that you cannot see.]",
    ),
    _Sight(
        "input_file",
        "files",
        "cannot read such files",
        "send their text in 'input' or choose another model",
        "[A file stood here that you cannot read.]",
    ),
)
_TEXT_FILES = ("data:text/", "data:application/json", "data:application/xml")


def _input(fitting: _Fitting) -> None:
    for sight in _SIGHTS:
        if getattr(fitting.can, sight.field) is False:
            _blind(fitting, sight)


def _blind(fitting: _Fitting, sight: _Sight) -> None:
    items = fitting.request.items
    if not holds(items, sight.field, partial(_shows, sight)):
        return
    told = [_blinded(item, sight) for item in items]
    hidden = [n for n, item in enumerate(items) if told[n] is not item]
    became = f"without {sight.part_type}"
    if hidden[-1] >= question_at(items):
        fitting.refuse("input", sight.why, legal=sight.legal, became=became, items=told)
    else:
        fitting.give_way("input", became=became, items=told)


def _is_asked(item: Item) -> bool:
    return item.get("type", "message") == "message" and item.get("role") != "assistant"


def _blinded(item: Item, sight: _Sight) -> Item:
    """Replace unsupported parts of `item` with a placeholder; `item` itself if it has
    none."""
    if not _shows(sight, item):
        return item
    if _is_screenshot(item, sight):
        return message("user", sight.stand_in)
    told, field = {"type": "input_text", "text": sight.stand_in}, _place(item)
    return {**item, field: [told if _is_hidden(p, sight) else p for p in item[field]]}


def _shows(sight: _Sight, item: Item) -> bool:
    """Whether the item has a part of this kind."""
    parts = item.get(_place(item))
    return _is_screenshot(item, sight) or (
        isinstance(parts, list) and any(_is_hidden(part, sight) for part in parts)
    )


def _place(item: Item) -> str:
    return "output" if item.get("type") == "function_call_output" else "content"


def _is_screenshot(item: Item, sight: _Sight) -> bool:
    kind = item.get("type", "message")
    return kind == "computer_call_output" and sight.part_type == "input_image"


def _is_hidden(part: Mapping[str, Any], sight: _Sight) -> bool:
    if part.get("type") != sight.part_type:
        return False
    return not str(part.get("file_data") or "").startswith(_TEXT_FILES)


def _either(names: Sequence[str]) -> str:
    *others, last = (repr(name) for name in names)
    return f"{', '.join(others)} or {last}" if others else last


_CHECKS: Sequence[Callable[[_Fitting], None]] = (
    _tools,
    _hosted_tools,
    _reasoning,  # before those that depend on whether the model reasons
    _tool_choice,
    _parallel_calls,
    _sampling,
    _temperature,
    _stop,
    _seed,
    _length,
    _form,
    _verbosity,
    _input,
)
