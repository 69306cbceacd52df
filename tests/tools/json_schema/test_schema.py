from __future__ import annotations

import enum
import sys
import typing
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field, field_validator
from typing_extensions import TypedDict

from tools.errors import InvalidArguments, InvalidTool
from tools.json_schema.arguments import check
from tools.json_schema.function_schema import signature_of
from tools.registry import Context


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Place(BaseModel):
    """Somewhere."""

    city: str
    zip: int = 0


class Even(BaseModel):
    number: int

    @field_validator("number")
    @classmethod
    def check_even(cls, value: int) -> int:
        if value % 2:
            raise ValueError("odd")
        return value


@dataclass
class Point:
    x: float


class Size(TypedDict):
    width: int


class Lean(typing.TypedDict):
    width: int


class Opaque:
    pass


PLACE = {
    "description": "Somewhere.",
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "zip": {"type": "integer", "default": 0},
    },
    "required": ["city"],
    "additionalProperties": False,
}
NULL = {"type": "null"}


def described(function):
    return signature_of(function, Context)


def taking(annotation):
    def function(value): ...

    function.__annotations__["value"] = annotation
    return described(function)


@pytest.mark.parametrize(
    ("annotation", "schema"),
    [
        (str, {"type": "string"}),
        (int, {"type": "integer"}),
        (float, {"type": "number"}),
        (bool, {"type": "boolean"}),
        (Any, {}),
        (list[int], {"type": "array", "items": {"type": "integer"}}),
        (
            dict[str, int],
            {"type": "object", "additionalProperties": {"type": "integer"}},
        ),
        (str | None, {"anyOf": [{"type": "string"}, NULL]}),
        (int | str, {"anyOf": [{"type": "integer"}, {"type": "string"}]}),
        (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}),
        (Literal[1, 2], {"type": "integer", "enum": [1, 2]}),
        (date, {"type": "string", "format": "date"}),
        ("str", {"type": "string"}),
        (Colour, {"$ref": "#/$defs/Colour"}),
        (Place, {"$ref": "#/$defs/Place"}),
        (Place | None, {"anyOf": [{"$ref": "#/$defs/Place"}, NULL]}),
        (
            Annotated[int, Field(ge=1, le=9, description="A digit.")],
            {"type": "integer", "minimum": 1, "maximum": 9, "description": "A digit."},
        ),
        (
            Annotated[str, Field(min_length=1, pattern="^a")],
            {"type": "string", "minLength": 1, "pattern": "^a"},
        ),
    ],
)
def test_a_type_has_its_schema(annotation, schema):
    parameters = taking(annotation).parameters
    parameters.pop("$defs", None)
    assert parameters == {
        "type": "object",
        "properties": {"value": schema},
        "required": ["value"],
        "additionalProperties": False,
    }


@pytest.mark.parametrize(
    ("annotation", "definition"),
    [
        (Colour, {"type": "string", "enum": ["red", "blue"]}),
        (Place, PLACE),
        (
            Point,
            {
                "type": "object",
                "properties": {"x": {"type": "number"}},
                "required": ["x"],
                "additionalProperties": False,
            },
        ),
        (
            Size,
            {
                "type": "object",
                "properties": {"width": {"type": "integer"}},
                "required": ["width"],
                "additionalProperties": False,
            },
        ),
    ],
)
def test_a_class_is_defined_once_and_closed(annotation, definition):
    defined = taking(list[annotation]).parameters["$defs"]
    assert defined == {annotation.__name__: definition}


def test_defaults_are_in_the_schema_and_applied_by_the_function():
    def function(
        colour: Colour = Colour.RED,
        tags: tuple[str, ...] = ("x",),
        n: int | None = None,
    ): ...

    signature = described(function)
    properties = signature.parameters["properties"]
    assert [properties[name]["default"] for name in properties] == ["red", ["x"], None]
    assert "required" not in signature.parameters
    assert signature.bind({}) == {}


def test_arguments_are_converted_to_their_types():
    def function(day: date, place: Place, colours: set[Colour], price: Decimal): ...

    fields = {
        "day": "2026-02-28",
        "place": {"city": "Riga"},
        "colours": ["red"],
        "price": "1.10",
    }
    signature = described(function)
    check(signature.parameters, fields)
    assert signature.bind(fields) == {
        "day": date(2026, 2, 28),
        "place": Place(city="Riga"),
        "colours": {Colour.RED},
        "price": Decimal("1.10"),
    }


def test_a_rule_beyond_json_schema_is_reported_when_broken():
    def function(items: list[Even]): ...

    with pytest.raises(InvalidArguments) as caught:
        described(function).bind({"items": [{"number": 2}, {"number": 3}]})
    assert str(caught.value) == (
        "the arguments do not fit: at items[1].number: Value error, odd."
    )


def test_parameters_may_have_any_name():
    def function(json: str, model_config: int, schema: str, _x: int, cls: str): ...

    fields = {"json": "a", "model_config": 1, "schema": "b", "_x": 2, "cls": "c"}
    assert described(function).bind(fields) == fields


def test_an_alias_is_the_name_the_model_uses():
    def function(sender: Annotated[str, Field(alias="from")] = "me"): ...

    signature = described(function)
    assert signature.parameters["properties"] == {
        "from": {"type": "string", "default": "me"}
    }
    assert signature.bind({"from": "you"}) == {"sender": "you"}


def test_a_function_without_parameters_takes_an_empty_object():
    def function(): ...

    assert described(function).parameters == {
        "type": "object",
        "properties": {},
        "additionalProperties": False,
    }


def test_the_context_is_ours_to_fill():
    def plain(city: str, context: Context): ...
    def optional(context: Context | None = None): ...
    def annotated(who: Annotated[Context, "us"]): ...

    assert described(plain).context == "context"
    assert list(described(plain).parameters["properties"]) == ["city"]
    assert described(optional).context == "context"
    assert described(annotated).context == "who"


GOOGLE = """Tell the weather.

    Only for today.

    Args:
        city (str): Name of the
            city.
        unknown: Not there.

    Returns:
        A sentence.
    """
NUMPY = """Tell the weather.

    Only for today.

    Parameters
    ----------
    city : str
        Name of the city.

    Returns
    -------
    str
        A sentence.
    """
REST = """Tell the weather.

    Only for today.

    :param city: Name of the city.
    :returns: A sentence.
    """


@pytest.mark.parametrize("docstring", [GOOGLE, NUMPY, REST])
def test_a_docstring_describes_in_every_common_style(docstring):
    def function(city: str): ...

    function.__doc__ = docstring
    signature = described(function)
    assert signature.description == "Tell the weather.\n\nOnly for today."
    assert signature.parameters["properties"]["city"] == {
        "type": "string",
        "description": "Name of the city.",
    }


def test_a_field_description_overrides_the_docstring():
    def function(city: Annotated[str, Field(description="Its name.")]):
        """Tell.

        Args:
            city: Something.
        """

    city_schema = described(function).parameters["properties"]["city"]
    assert city_schema["description"] == "Its name."


def test_no_docstring_is_no_description():
    def function(city: str): ...

    assert described(function).description == ""


OPAQUE = Opaque()


def untyped(city): ...
def star(*cities: str): ...
def stars(**cities: str): ...
def positional(city: str, /): ...
def opaque(city: str, thing: Opaque): ...
def lean(size: Lean): ...
def unreadable(city: Nowhere): ...  # noqa: F821
def twice(one: Context, two: Context): ...
def hidden(city: Annotated[str, Field(default="Riga")]): ...
def swapped(city: str = Field("Riga")): ...
def undefaulted(thing: Any = OPAQUE): ...
def generator(city: str):
    yield city


NAME = "tests.tools.json_schema.test_schema."


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        (untyped, "has no type for its parameter 'city'."),
        (star, "takes *cities: 'str'; name each parameter."),
        (stars, "takes **cities: 'str'; name each parameter."),
        (positional, "takes 'city' by position only; remove the '/'."),
        (
            opaque,
            "has a type for its parameter 'thing' that cannot be written as JSON"
            " Schema:"
            " Unable to generate pydantic-core schema for"
            " <class 'tests.tools.json_schema.test_schema.Opaque'>.",
        ),
        pytest.param(
            lean,
            "has a type for its parameter 'size' that cannot be written as JSON Schema:"
            " Please use `typing_extensions.TypedDict` instead of `typing.TypedDict` on"
            " Python < 3.12.",
            marks=pytest.mark.skipif(
                sys.version_info >= (3, 12), reason="Python 3.12 can tell it"
            ),
        ),
        (
            unreadable,
            "has a type for its parameter 'city' that cannot be read: name 'Nowhere' is"
            " not defined. Types must be importable when the program runs, at the top"
            " of the module.",
        ),
        (twice, "takes more than one Context."),
        (
            hidden,
            "hides the default of 'city' in a Field(); write"
            " `city: Annotated[type, Field(...)] = default`.",
        ),
        (
            swapped,
            "hides the default of 'city' in a Field(); write"
            " `city: Annotated[type, Field(...)] = default`.",
        ),
        (
            undefaulted,
            "has a default for its parameter 'thing' that cannot be written as JSON.",
        ),
        (generator, "is a generator; a tool returns its result."),
    ],
)
def test_an_unsupported_type_is_refused_by_name(function, problem):
    with pytest.raises(InvalidTool) as caught:
        described(function)
    assert str(caught.value) == f"{NAME}{function.__name__} {problem}"


@pytest.mark.parametrize("thing", ["a name", Opaque, print])
def test_an_object_that_is_no_function_is_refused(thing):
    with pytest.raises(InvalidTool, match="is not a function"):
        described(thing)
