"""Choose the tool calls for a question. Pure.

A tool is recognised by its name, otherwise by its description; its parameters by the
names in its JSON Schema. So the demo can call any weather tool, not only this server's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import orjson

from llm.demo.cities import ZONES, cities
from llm.demo.prompt import DemoPrompt, OfferedTool
from llm.demo.schema_sample import Endless, sample
from llm.demo.steps import CallTool

#: Characters of a question that are searched; the patterns would be slow on longer
#: text.
MAX_READ = 2_000

WEATHER_TOOL = re.compile(r"weather|forecast|temperature", re.IGNORECASE)
TIME_TOOL = re.compile(r"(?<![a-z])time|clock|(?<![a-z])date(?![a-z])", re.IGNORECASE)
MATHS_TOOL = re.compile(r"calc|arithmetic|(?<![a-z])maths?(?![a-z])|expression", re.I)

_WEATHER = re.compile(
    r"\b(weather|forecast|temperature|rain(ing|y)?|sunny|umbrella"
    r"|how (warm|cold|hot))\b",
    re.IGNORECASE,
)
_TIME = re.compile(
    r"\b(what(’s|'s| is)? the time|what time|time is it|(current|local) time"
    r"|o['’]clock|what(’s|'s| is)? the date|what day)\b",
    re.IGNORECASE,
)
_MATHS = re.compile(
    r"\b(what(’s|'s| is)|calculate|compute|how much is|evaluate|solve|work out)\b|=",
    re.IGNORECASE,
)
_FOLLOW_UP = re.compile(r"\s*(and|what about|how about|same)\b", re.IGNORECASE)
_QUOTED = re.compile(r"[\"“]([^\"”]{1,500})[\"”]")
_TOOL = re.compile(r"\s*/tool (\S+)\s*(.*)", re.DOTALL)

_SPELLED_OPERATORS = [
    (re.compile(r"\d{4}-\d\d-\d\d"), " "),  # a date is not a subtraction
    (re.compile(r"(?<=\d),(?=\d{3}\b)"), ""),
    (re.compile(r"\s+plus\s+", re.I), " + "),
    (re.compile(r"\s+minus\s+", re.I), " - "),
    (re.compile(r"\s+(times|multiplied by)\s+|×|·", re.I), " * "),
    (re.compile(r"\s+(divided by|over)\s+|÷", re.I), " / "),
    (re.compile(r"\^"), "**"),
]
_EXPRESSION = re.compile(r"[-(\d][-\d\s.+*/()%]*[\d)]")
_OPERATION = re.compile(r"\d\s*\)*\s*(\*\*|//|[-+*/%])\s*[-(]*\s*\.?\d")

_CITY_PARAMETER = re.compile(r"city|location|place|town|where|address", re.IGNORECASE)
_ZONE_PARAMETER = re.compile(r"zone|(?<![a-z])tz(?![a-z])", re.IGNORECASE)
_FORMULA_PARAMETER = re.compile(
    r"expr|formula|equation|calculation|input", re.IGNORECASE
)


def choose_calls(prompt: DemoPrompt) -> list[CallTool]:
    """The calls that this question still needs, in the order of the question."""
    open_calls = [call for call in _all_calls(prompt) if not _is_answered(call, prompt)]
    if prompt.must_call and not open_calls:
        open_calls = [_build_call(prompt.tools[0], None, prompt.question)]
    return open_calls if prompt.parallel else open_calls[:1]


def find_topic(question: str) -> str:
    """The topic of a question: "weather", "time", "maths" or ""."""
    question = question[:MAX_READ]
    if _WEATHER.search(question):
        return "weather"
    if _TIME.search(question):
        return "time"
    return "maths" if expression(question) else ""


def expression(question: str) -> str:
    """The arithmetic expression in a question, in symbols; "" if there is none."""
    question = question[:MAX_READ]
    for pattern, symbol in _SPELLED_OPERATORS:
        question = pattern.sub(symbol, question)
    found = [text for text in _EXPRESSION.findall(question) if _OPERATION.search(text)]
    longest = " ".join(str(max(found, key=len, default="")).split())
    alone = " ".join(question.strip(" ?.!=").split()) == longest
    return longest if alone or _MATHS.search(question) else ""


def _all_calls(prompt: DemoPrompt) -> Iterator[CallTool]:
    if match := _TOOL.match(prompt.question):
        if not prompt.answered:
            yield from _explicit_calls(match[1], match[2], prompt.tools)
        return
    prompt = prompt.with_question(prompt.question[:MAX_READ])
    calls = list(_lookup_calls(prompt))
    yield from calls
    called = {call.name for call in calls}
    for tool in prompt.tools:
        if tool.name not in called and _mentions(prompt.question, tool.name):
            yield _build_call(tool, None, prompt.question)


def _lookup_calls(prompt: DemoPrompt) -> Iterator[CallTool]:
    """Calls for the weather and time of each city, and for arithmetic."""
    question, topics = prompt.question, _topics(prompt)
    city_names = _find_cities(prompt)
    if "weather" in topics and (tool := _find(prompt.tools, WEATHER_TOOL)):
        for city in city_names:
            yield _build_call(tool, _CITY_PARAMETER, city)
    if "time" in topics and (tool := _find(prompt.tools, TIME_TOOL, WEATHER_TOOL)):
        yield from _time_calls(tool, city_names)
    if (sum_ := expression(question)) and (tool := _find(prompt.tools, MATHS_TOOL)):
        yield _build_call(tool, _FORMULA_PARAMETER, sum_)


def _time_calls(tool: OfferedTool, city_names: Sequence[str]) -> Iterator[CallTool]:
    names = " ".join(_properties(tool))
    if not _ZONE_PARAMETER.search(names) and _CITY_PARAMETER.search(names):
        for city in city_names:
            yield _build_call(tool, _CITY_PARAMETER, city)
        return
    zones = [ZONES[city] for city in city_names if city in ZONES]
    for zone in dict.fromkeys(zones if city_names else ["UTC"]):
        yield _build_call(tool, _ZONE_PARAMETER, zone)


def _topics(prompt: DemoPrompt) -> set[str]:
    """The topics of a question; "And in Tokyo?" has those of an earlier question."""
    question = prompt.question
    if _FOLLOW_UP.match(question) and not find_topic(question):
        question = next(
            (m.text for m in prompt.user_messages[-2::-1] if find_topic(m.text)), ""
        )
    found = {"weather"} if _WEATHER.search(question) else set()
    return found | ({"time"} if _TIME.search(question) else set())


def _find_cities(prompt: DemoPrompt) -> list[str]:
    """The cities in the question, otherwise those in the last question with a city."""
    if found := cities(prompt.question):
        return found
    earlier = (cities(m.text[:MAX_READ]) for m in prompt.user_messages[-2::-1])
    return next(filter(None, earlier), [])


def _explicit_calls(
    name: str, arguments: str, tools: Sequence[OfferedTool]
) -> Iterator[CallTool]:
    for tool in tools:
        if tool.name == name:
            yield CallTool(
                name, arguments.strip() or _build_call(tool, None, "").arguments
            )
            return


def _find(
    tools: Sequence[OfferedTool],
    pattern: re.Pattern[str],
    other: re.Pattern[str] | None = None,
) -> OfferedTool | None:
    """Find a tool by name, else by description unless its name matches `other`."""
    for tool in tools:
        if pattern.search(tool.name):
            return tool
    for tool in tools:
        if pattern.search(tool.description) and not (other and other.search(tool.name)):
            return tool
    return None


def _mentions(question: str, name: str) -> bool:
    return re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", question) is not None


def _build_call(
    tool: OfferedTool, property: re.Pattern[str] | None, value: str
) -> CallTool:
    """A call with `value` in the matching property, else in the first text property.

    Without `property`, `value` is the question, of which a quotation or city is used.
    """
    arguments = _sample_arguments(tool)
    if property is None:
        value = value[:MAX_READ]
        quoted = _QUOTED.search(value)
        city_names = cities(value)
        value = quoted[1] if quoted else city_names[0] if city_names else ""
    if value and (name := _slot(tool, property)):
        arguments[name] = value
    return CallTool(tool.name, orjson.dumps(arguments).decode())


def _sample_arguments(tool: OfferedTool) -> dict[str, Any]:
    try:
        arguments = sample({"type": "object", **tool.parameters})
    except Endless:
        return {}
    return arguments if isinstance(arguments, dict) else {}


def _slot(tool: OfferedTool, property: re.Pattern[str] | None) -> str | None:
    properties = _properties(tool)
    if property and (named := [name for name in properties if property.search(name)]):
        return named[0]
    texts = [name for name, schema in properties.items() if _is_text(schema)]
    return next(iter(texts), None)


def _properties(tool: OfferedTool) -> dict[str, Any]:
    properties = tool.parameters.get("properties")
    return dict(properties) if isinstance(properties, dict) else {}


def _is_text(schema: Any) -> bool:
    if not isinstance(schema, dict) or "enum" in schema or "const" in schema:
        return False
    return "string" in (schema.get("type"), *_types(schema))


def _types(schema: dict[str, Any]) -> list[Any]:
    types = schema.get("type")
    return types if isinstance(types, list) else []


def _is_answered(call: CallTool, prompt: DemoPrompt) -> bool:
    return any(
        done.name == call.name and done.arguments == orjson.loads(call.arguments)
        for done in prompt.answered
    )
