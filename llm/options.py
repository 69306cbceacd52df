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

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from llm.adaptation import hosted_tools
from llm.adaptation.input_modalities import (
    MODALITIES,
    Modality,
    contains_part,
    question_start,
    replace_parts,
)
from llm.capabilities import EFFORTS, Capabilities
from llm.errors import BadRequest
from llm.wire.codec import Codec
from llm.wire.codecs.feature_fallbacks import is_forced
from llm.wire.delta_reader import DECODE_ERRORS
from llm.wire.item_prefix_cache import has_item
from llm.wire.request import Request


@dataclass(frozen=True, slots=True)
class FitResult:
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
    droppable: Collection[str] = (),
    codec: Codec | None = None,
) -> FitResult:
    """Adapt `request` to the model and to the wire format of `codec`.

    Raises BadRequest for an option that the model does not accept, unless it is in
    `droppable` or `ignore_invalid` is set.
    """
    fitter = _Fitter(
        request, capabilities, model_name, ignore_invalid, droppable, codec
    )
    given = {n for n in _CHECKED if getattr(request, n) not in UNSET_VALUES}
    for options, check in _CHECKS:
        if not options or not given.isdisjoint(options):
            check(fitter)
    return FitResult(fitter.request, tuple(dict.fromkeys(fitter.dropped)))


def find_approximations(codec: Codec, request: Request) -> tuple[str, ...]:
    """What this wire format can only approximate; () if the codec reports nothing.

    Raises BadRequest for what it cannot express at all.
    """
    find = getattr(codec, "degraded", None)
    if find is None:
        return ()
    try:
        return tuple(find(request))
    except DECODE_ERRORS as exc:
        raise BadRequest(
            "This provider's API cannot represent the request: check its tools, its"
            " JSON Schemas and its messages.",
            detail=f"{type(exc).__name__} while reading the request.",
        ) from exc


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


@dataclass(slots=True, eq=False, repr=False)
class _Fitter:
    """The state of one request during the checks."""

    request: Request
    can: Capabilities
    model_name: str
    ignore_invalid: bool
    droppable: Collection[str]
    codec: Codec | None
    dropped: list[str] = field(default_factory=list)

    def refuse(
        self, option: str, why: str, *, legal: str, became: Any = None, **instead: Any
    ) -> None:
        """Raise BadRequest; if the option may be dropped, set the fields `instead` and
        report it."""
        if not self.ignore_invalid and option.partition(".")[0] not in self.droppable:
            raise BadRequest(
                f"The model {self.model_name!r} {why}; {legal}.", param=option
            )
        self.change(option, became=became, **instead)

    def change(self, option: str, *, became: Any = None, **instead: Any) -> None:
        self.request = replace(self.request, **instead)
        self.dropped.append(option if became is None else f"{option} ({became})")

    @property
    def effort(self) -> str | None:
        return (self.request.reasoning or {}).get("effort")

    @property
    def reasons(self) -> bool | None:
        return self.can.reasons(self.effort)


# Tools


def _check_tools(fitter: _Fitter) -> None:
    if fitter.can.tools is False and fitter.request.tools:
        fitter.refuse(
            "tools",
            "does not support 'tools'",
            legal="leave them out",
            tools=(),
            tool_choice=None,
            parallel_tool_calls=None,
        )


def _check_hosted_tools(fitter: _Fitter) -> None:
    """Check for hosted tools that the provider does not support as declared."""
    tools = fitter.request.tools
    functions = [t for t in tools if t.get("type") in ("function", "custom")]
    if len(functions) == len(tools):
        return
    for tool in tools:
        if not hosted_tools.is_hosted(tool):
            continue
        why = hosted_tools.why_unsupported(
            fitter.codec,
            fitter.can,
            tool,
            model=fitter.request.model,
            beside=functions,
        )
        if why is None:
            continue
        kind = tool.get("type")
        fitter.refuse(
            "tools",
            f"does not support the tool {kind!r}",
            legal=why[:1].lower() + why[1:].removesuffix("."),
            became=f"without {kind}",
            **_without(fitter.request, tool),
        )


def _without(request: Request, tool: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a request without this tool."""
    tools = [each for each in request.tools if each is not tool]
    if not tools:
        return {"tools": (), "tool_choice": None, "parallel_tool_calls": None}
    choice, kind = request.tool_choice, hosted_tools.kind_of(tool)
    if isinstance(choice, Mapping):
        named = choice.get("tools") if choice.get("type") == "allowed_tools" else None
        if named is not None:
            left = [t for t in named if hosted_tools.kind_of(t) != kind or kind is None]
            choice = {**choice, "tools": left} if left else "none"
        elif kind is not None and hosted_tools.kind_of(choice) == kind:
            choice = "auto"
    return {"tools": tools, "tool_choice": choice}


def _check_tool_choice(fitter: _Fitter) -> None:
    can, request = fitter.can, fitter.request
    choice = request.tool_choice
    if not request.tools or choice in (None, "auto") or not is_forced(choice):
        return
    instead = _relax_tool_choice(request.tool_choice)
    legal = "'tool_choice' may be 'auto' or 'none'"
    if can.forced_tools is False:
        fitter.refuse(
            "tool_choice",
            "cannot be forced to call a tool",
            legal=legal,
            tool_choice=instead,
        )
    elif can.forced_while_reasoning is False and fitter.reasons:
        fitter.refuse(
            "tool_choice",
            "cannot be forced to call a tool while it reasons",
            legal=legal + _or_no_reasoning(can),
            tool_choice=instead,
        )


def _relax_tool_choice(choice: Any) -> Any:
    if isinstance(choice, Mapping) and choice.get("type") == "allowed_tools":
        return {**choice, "mode": "auto"}
    return "auto"


def _check_parallel_calls(fitter: _Fitter) -> None:
    if fitter.can.parallel_tools is False and fitter.request.parallel_tool_calls:
        fitter.change("parallel_tool_calls", parallel_tool_calls=None)


# Reasoning and sampling


def _check_reasoning(fitter: _Fitter) -> None:
    can, effort = fitter.can, fitter.effort
    if not fitter.request.reasoning:
        return
    if can.reasoning is False:
        _remove_reasoning(fitter)
    elif effort and can.efforts is not None and effort not in can.efforts:
        _change_effort(fitter, effort, can.efforts)


def _remove_reasoning(fitter: _Fitter) -> None:
    """Asking such a model not to reason, or for a summary, is not an error."""
    if fitter.effort == "none":
        fitter.request = replace(fitter.request, reasoning=None)
    elif fitter.effort is None:
        fitter.change("reasoning", reasoning=None)
    else:
        fitter.refuse(
            "reasoning.effort",
            "does not reason",
            legal="leave 'reasoning' out",
            reasoning=None,
        )


def _change_effort(fitter: _Fitter, effort: str, legal: Sequence[str]) -> None:
    rest = {k: v for k, v in (fitter.request.reasoning or {}).items() if k != "effort"}
    if not legal:
        fitter.refuse(
            "reasoning.effort",
            "decides itself how much it reasons and does not support"
            " 'reasoning.effort'",
            legal="leave it out",
            reasoning=rest or None,
        )
        return
    nearest = nearest_effort(effort, legal)
    fitter.refuse(
        "reasoning.effort",
        f"does not support the 'reasoning.effort' {effort!r}",
        legal=f"it may be {_either(legal)}",
        became=f"{effort} → {nearest}",
        reasoning={**rest, "effort": nearest},
    )


#: Options that a model may refuse while it reasons, and the capability of each.
_SAMPLING: Mapping[str, str | None] = {
    "temperature": None,
    "top_p": None,
    "presence_penalty": "penalties",
    "frequency_penalty": "penalties",
    "top_logprobs": "logprobs",
}


def _check_sampling(fitter: _Fitter) -> None:
    can = fitter.can
    for option, own_field in _SAMPLING.items():
        value = getattr(fitter.request, option)
        if value is None or (own_field and not value):
            continue  # a penalty of 0 has no effect
        why, legal = f"does not support {option!r}", "leave it out"
        if can.sampling == "without_reasoning" and fitter.reasons:
            why, legal = f"{why} while it reasons", legal + _or_no_reasoning(can)
        elif can.sampling != "never" and not _is_denied(can, own_field):
            continue
        fitter.refuse(option, why, legal=legal, **{option: None})


def _is_denied(can: Capabilities, field: str | None) -> bool:
    return field is not None and getattr(can, field) is False


def _check_temperature(fitter: _Fitter) -> None:
    wanted, limit = fitter.request.temperature, fitter.can.max_temperature
    if wanted is not None and limit is not None and wanted > limit:
        fitter.refuse(
            "temperature",
            f"does not support a 'temperature' of {wanted:g}",
            legal=f"it may be from 0 to {limit:g}",
            became=f"{wanted:g} → {limit:g}",
            temperature=limit,
        )


def _check_stop(fitter: _Fitter) -> None:
    if fitter.can.stop is False and fitter.request.stop:
        fitter.refuse("stop", "does not support 'stop'", legal="leave it out", stop=())


def _check_seed(fitter: _Fitter) -> None:
    if fitter.can.seed is False and fitter.request.seed is not None:
        fitter.change("seed", seed=None)


def _or_no_reasoning(can: Capabilities) -> str:
    if can.efforts and "none" in can.efforts:
        return ", or set 'reasoning.effort' to 'none'"
    if can.default_effort == "none":
        return ", or leave 'reasoning' out"
    return ""


# The answer


def _check_length(fitter: _Fitter) -> None:
    wanted, limit = fitter.request.max_output_tokens, fitter.can.max_output_tokens
    if wanted is not None and limit is not None and wanted > limit:
        fitter.refuse(
            "max_output_tokens",
            f"cannot write {wanted} tokens",
            legal=f"'max_output_tokens' may be {limit} at most",
            became=f"{wanted} → {limit}",
            max_output_tokens=limit,
        )


def _check_format(fitter: _Fitter) -> None:
    can, text = fitter.can, dict(fitter.request.text or {})
    format_option = text.pop("format", None) or {}
    kind = format_option.get("type")
    if kind not in ("json_schema", "json_object") or kind in (
        legal := _list_supported_formats(can)
    ):
        return
    why = {
        "json_schema": "does not support a JSON Schema for its answer",
        "json_object": "has no JSON mode",
    }[kind]
    as_object = kind == "json_schema" and can.json_mode is True
    if as_object:
        text["format"] = {"type": "json_object"}
    fitter.refuse(
        "text.format",
        why,
        legal=f"'text.format' may be of the type {_either(legal)}",
        became="json_schema → json_object" if as_object else None,
        text=text or None,
    )


def _list_supported_formats(can: Capabilities) -> list[str]:
    """The types of `text.format` that are supported or unknown."""
    support = {"json_object": can.json_mode, "json_schema": can.json_schema}
    return ["text", *(name for name, takes in support.items() if takes is not False)]


def _check_verbosity(fitter: _Fitter) -> None:
    text = dict(fitter.request.text or {})
    if fitter.can.verbosity is False and text.pop("verbosity", None) is not None:
        fitter.change("text.verbosity", text=text or None)


# The input


def _check_input(fitter: _Fitter) -> None:
    for modality in MODALITIES:
        if getattr(fitter.can, modality.field) is False:
            _hide_parts(fitter, modality)
        elif modality.field == "files" and not getattr(fitter.codec, "files", True):
            _hide_parts(fitter, modality)  # its wire format has no place for files


def _hide_parts(fitter: _Fitter, modality: Modality) -> None:
    items = fitter.request.items
    if not has_item(items, modality.field, partial(contains_part, modality)):
        return
    replaced = [replace_parts(item, modality) for item in items]
    hidden = [n for n, item in enumerate(items) if replaced[n] is not item]
    became = f"without {modality.part_type}"
    if hidden[-1] >= question_start(items):
        fitter.refuse(
            "input", modality.why, legal=modality.legal, became=became, items=replaced
        )
    else:
        fitter.change("input", became=became, items=replaced)


def _either(names: Sequence[str]) -> str:
    *others, last = (repr(name) for name in names)
    return f"{', '.join(others)} or {last}" if others else last


#: The checks in their order. One is left out if none of its options is set.
_CHECKS: Sequence[tuple[Sequence[str], Callable[[_Fitter], None]]] = (
    (("tools",), _check_tools),
    (("tools",), _check_hosted_tools),
    (("reasoning",), _check_reasoning),  # before those for models that reason
    (("tools",), _check_tool_choice),
    (("parallel_tool_calls",), _check_parallel_calls),
    (tuple(_SAMPLING), _check_sampling),
    (("temperature",), _check_temperature),
    (("stop",), _check_stop),
    (("seed",), _check_seed),
    (("max_output_tokens",), _check_length),
    (("text",), _check_format),
    (("text",), _check_verbosity),
    ((), _check_input),
)
_CHECKED = frozenset(name for options, _ in _CHECKS for name in options)
UNSET_VALUES: tuple[Any, ...] = (None, (), [], {})
