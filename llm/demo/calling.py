"""Choose the tool calls for a question. Pure.

A tool is recognised by its name, otherwise by its description; its parameters by the
names in its JSON Schema. So the demo can call any weather tool, not only this server's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import orjson

from llm.demo.places import ZONES, cities
from llm.demo.prompt import Offer, Prompt
from llm.demo.sample import Endless, sample
from llm.demo.steps import Call

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

_SPOKEN = [
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

_PLACE = re.compile(r"city|location|place|town|where|address", re.IGNORECASE)
_ZONE = re.compile(r"zone|(?<![a-z])tz(?![a-z])", re.IGNORECASE)
_FORMULA = re.compile(r"expr|formula|equation|calculation|input", re.IGNORECASE)


def wanted(prompt: Prompt) -> list[Call]:
    """The calls that this question still needs, in the order of the question."""
    open_calls = [call for call in _asked_for(prompt) if not _made(call, prompt)]
    if prompt.must_call and not open_calls:
        open_calls = [_filled(prompt.tools[0], None, prompt.question)]
    return open_calls if prompt.parallel else open_calls[:1]


def is_about(question: str) -> str:
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
    for pattern, symbol in _SPOKEN:
        question = pattern.sub(symbol, question)
    found = [text for text in _EXPRESSION.findall(question) if _OPERATION.search(text)]
    longest = " ".join(str(max(found, key=len, default="")).split())
    alone = " ".join(question.strip(" ?.!=").split()) == longest
    return longest if alone or _MATHS.search(question) else ""


def _asked_for(prompt: Prompt) -> Iterator[Call]:
    if match := _TOOL.match(prompt.question):
        if not prompt.answered:
            yield from _told(match[1], match[2], prompt.tools)
        return
    prompt = prompt.asking(prompt.question[:MAX_READ])
    calls = list(_looked_up(prompt))
    yield from calls
    called = {call.name for call in calls}
    for tool in prompt.tools:
        if tool.name not in called and _mentions(prompt.question, tool.name):
            yield _filled(tool, None, prompt.question)


def _looked_up(prompt: Prompt) -> Iterator[Call]:
    """Calls for the weather and time of each city, and for arithmetic."""
    question, topics = prompt.question, _topics(prompt)
    places = _places(prompt)
    if "weather" in topics and (tool := _find(prompt.tools, WEATHER_TOOL)):
        for city in places:
            yield _filled(tool, _PLACE, city)
    if "time" in topics and (tool := _find(prompt.tools, TIME_TOOL, WEATHER_TOOL)):
        yield from _times(tool, places)
    if (sum_ := expression(question)) and (tool := _find(prompt.tools, MATHS_TOOL)):
        yield _filled(tool, _FORMULA, sum_)


def _times(tool: Offer, places: Sequence[str]) -> Iterator[Call]:
    names = " ".join(_properties(tool))
    if not _ZONE.search(names) and _PLACE.search(names):
        for city in places:
            yield _filled(tool, _PLACE, city)
        return
    zones = [ZONES[city] for city in places if city in ZONES]
    for zone in dict.fromkeys(zones if places else ["UTC"]):
        yield _filled(tool, _ZONE, zone)


def _topics(prompt: Prompt) -> set[str]:
    """The topics of a question; "And in Tokyo?" has those of an earlier question."""
    question = prompt.question
    if _FOLLOW_UP.match(question) and not is_about(question):
        question = next((m.text for m in prompt.asked[-2::-1] if is_about(m.text)), "")
    found = {"weather"} if _WEATHER.search(question) else set()
    return found | ({"time"} if _TIME.search(question) else set())


def _places(prompt: Prompt) -> list[str]:
    """The cities in the question, otherwise those in the last question with a city."""
    if found := cities(prompt.question):
        return found
    earlier = (cities(m.text[:MAX_READ]) for m in prompt.asked[-2::-1])
    return next(filter(None, earlier), [])


def _told(name: str, arguments: str, tools: Sequence[Offer]) -> Iterator[Call]:
    for tool in tools:
        if tool.name == name:
            yield Call(name, arguments.strip() or _filled(tool, None, "").arguments)
            return


def _find(
    tools: Sequence[Offer],
    pattern: re.Pattern[str],
    other: re.Pattern[str] | None = None,
) -> Offer | None:
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


def _filled(tool: Offer, property: re.Pattern[str] | None, value: str) -> Call:
    """A call with `value` in the matching property, else in the first text property.

    Without `property`, `value` is the question, of which a quotation or city is used.
    """
    arguments = _required(tool)
    if property is None:
        value = value[:MAX_READ]
        quoted = _QUOTED.search(value)
        places = cities(value)
        value = quoted[1] if quoted else places[0] if places else ""
    if value and (name := _slot(tool, property)):
        arguments[name] = value
    return Call(tool.name, orjson.dumps(arguments).decode())


def _required(tool: Offer) -> dict[str, Any]:
    try:
        arguments = sample({"type": "object", **tool.parameters})
    except Endless:
        return {}
    return arguments if isinstance(arguments, dict) else {}


def _slot(tool: Offer, property: re.Pattern[str] | None) -> str | None:
    properties = _properties(tool)
    if property and (named := [name for name in properties if property.search(name)]):
        return named[0]
    texts = [name for name, schema in properties.items() if _is_text(schema)]
    return next(iter(texts), None)


def _properties(tool: Offer) -> dict[str, Any]:
    properties = tool.parameters.get("properties")
    return dict(properties) if isinstance(properties, dict) else {}


def _is_text(schema: Any) -> bool:
    if not isinstance(schema, dict) or "enum" in schema or "const" in schema:
        return False
    return "string" in (schema.get("type"), *_types(schema))


def _types(schema: dict[str, Any]) -> list[Any]:
    types = schema.get("type")
    return types if isinstance(types, list) else []


def _made(call: Call, prompt: Prompt) -> bool:
    return any(
        done.name == call.name and done.arguments == orjson.loads(call.arguments)
        for done in prompt.answered
    )
