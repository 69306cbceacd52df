"""JSON Schema of a typed function, and conversion of a call's JSON to arguments. Pure.

In: the signature, its type hints and the docstring. Out: the description and the schema
that models receive, and the values that the function is called with. A type that
pydantic cannot express as a schema is refused when the function is imported.

Source: https://json-schema.org/draft/2020-12
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace, UnionType
from typing import Annotated, Any, NoReturn, NotRequired, Required, Union, cast

import docstring_parser
import typing_extensions
from pydantic import ConfigDict, PydanticUserError, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import (
    PydanticSerializationError,
    PydanticUndefined,
    to_jsonable_python,
)

from tools.errors import InvalidTool
from tools.json_schema.arguments import raise_invalid

JsonSchema = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Signature:
    """Description and schema of a function, and conversion of JSON to its arguments."""

    description: str
    parameters: JsonSchema
    context: str  # name of the parameter that receives the Context; "" for none
    is_async: bool
    _adapter: TypeAdapter[dict[str, Any]]

    def bind(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Keyword arguments of the declared types, without those that have defaults and
        were not passed.

        Raises InvalidArguments if a type has rules that JSON Schema cannot express.
        """
        try:
            return self._adapter.validate_python(arguments)
        except ValidationError as exc:
            raise_invalid((error["loc"], error["msg"]) for error in exc.errors())


def signature_of(function: Callable[..., Any], context: type) -> Signature:
    """Raises InvalidTool. A parameter with the type `context` is not in the schema."""
    _check_kind(function)
    hints = {
        parameter.name: _hint(function, parameter)
        for parameter in inspect.signature(function).parameters.values()
    }
    context_names = [name for name, hint in hints.items() if _is_context(hint, context)]
    if len(context_names) > 1:
        _refuse(function, f"takes more than one {context.__name__}.")
    docstring = _docstring(function)
    model_hints = {
        name: hint for name, hint in hints.items() if name not in context_names
    }
    adapter, parameters = _build_schema(function, model_hints)
    for name, text in _parameter_texts(docstring).items():
        if name in parameters["properties"]:
            parameters["properties"][name].setdefault("description", text)
    return Signature(
        description=(docstring.description or "").strip(),
        parameters=parameters,
        context=context_names[0] if context_names else "",
        is_async=inspect.iscoroutinefunction(function),
        _adapter=adapter,
    )


def _check_kind(function: Callable[..., Any]) -> None:
    if not inspect.isfunction(function):
        raise InvalidTool(
            f"{function!r} is not a function; decorate a function, and pass settings"
            " by name: @tool(timeout=5)."
        )
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        _refuse(function, "is a generator; a tool returns its result.")


def _hint(function: Callable[..., Any], parameter: inspect.Parameter) -> Any:
    name = parameter.name
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        _refuse(function, f"takes {parameter}; name each parameter.")
    if parameter.kind is parameter.POSITIONAL_ONLY:
        _refuse(function, f"takes {name!r} by position only; remove the '/'.")
    if parameter.annotation is parameter.empty:
        _refuse(function, f"has no type for its parameter {name!r}.")
    hint = _resolve_hint(function, parameter)
    for default in [parameter.default, *getattr(hint, "__metadata__", ())]:
        if isinstance(default, FieldInfo) and (
            default is parameter.default
            or default.default is not PydanticUndefined
            or default.default_factory is not None
        ):
            _refuse(
                function,
                f"hides the default of {name!r} in a Field(); write"
                f" `{name}: Annotated[type, Field(...)] = default`.",
            )
    return hint


def _resolve_hint(function: Callable[..., Any], parameter: inspect.Parameter) -> Any:
    """The parameter's type; the annotation itself is text under `from __future__ import
    annotations`."""
    annotated = SimpleNamespace(__annotations__={parameter.name: parameter.annotation})
    names = getattr(inspect.unwrap(function), "__globals__", {})
    try:
        hints = typing.get_type_hints(annotated, globalns=names, include_extras=True)
    except (NameError, TypeError, SyntaxError, AttributeError) as exc:
        raise InvalidTool(
            f"{_name(function)} has a type for its parameter {parameter.name!r} that"
            f" cannot be read: {exc}. Types must be importable when the program runs,"
            " at the top of the module."
        ) from exc
    return hints[parameter.name]


def _is_context(hint: Any, context: type) -> bool:
    if typing.get_origin(hint) is Annotated:
        hint = typing.get_args(hint)[0]
    if typing.get_origin(hint) in (Union, UnionType):
        return context in typing.get_args(hint)
    return hint is context


def _build_schema(
    function: Callable[..., Any], hints: Mapping[str, Any]
) -> tuple[TypeAdapter[dict[str, Any]], JsonSchema]:
    parameters = inspect.signature(function).parameters
    fields = {
        name: _field(hint, parameters[name].default) for name, hint in hints.items()
    }
    try:
        adapter = _adapter(fields)
        schema = adapter.json_schema(schema_generator=_SchemaWithoutTitles)
    except (PydanticUserError, TypeError) as exc:
        culprits = [repr(n) for n in fields if not _is_describable(fields[n])]
        raise InvalidTool(
            f"{_name(function)} has a type for its parameter {', '.join(culprits)}"
            f" that cannot be written as JSON Schema: {_first_sentence(exc)}."
        ) from exc
    for name in hints:
        if parameters[name].default is not inspect.Parameter.empty:
            alias = _alias(hints[name]) or name
            default = _default(function, parameters[name])
            schema["properties"][alias]["default"] = default
    return adapter, _forbid_additional_properties(schema)


def _field(hint: Any, default: Any) -> Any:
    # Any, because mypy does not accept types that are built at run time.
    required: Any = Required if default is inspect.Parameter.empty else NotRequired
    return required[hint]


def _adapter(fields: Mapping[str, Any]) -> TypeAdapter[dict[str, Any]]:
    # A TypedDict, because a model class has attributes that could have the same name as
    # a parameter.
    typed_dict = cast(Any, typing_extensions.TypedDict)("Arguments", dict(fields))
    typed_dict.__pydantic_config__ = ConfigDict(extra="forbid")
    return TypeAdapter(typed_dict)


def _is_describable(field: Any) -> bool:
    try:
        _adapter({"field": field}).json_schema()
    except (PydanticUserError, TypeError):
        return False
    return True


def _first_sentence(exc: Exception) -> str:
    return str(exc).partition("\n")[0].partition(". ")[0].rstrip(".")


def _alias(hint: Any) -> str:
    fields = [m for m in getattr(hint, "__metadata__", ()) if isinstance(m, FieldInfo)]
    return next((str(field.alias) for field in fields if field.alias), "")


def _default(function: Callable[..., Any], parameter: inspect.Parameter) -> Any:
    try:
        return to_jsonable_python(parameter.default)
    except PydanticSerializationError as exc:
        raise InvalidTool(
            f"{_name(function)} has a default for its parameter {parameter.name!r} that"
            " cannot be written as JSON."
        ) from exc


class _SchemaWithoutTitles(GenerateJsonSchema):
    """JSON Schema without titles, which only repeat the names."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def _forbid_additional_properties(schema: JsonSchema) -> JsonSchema:
    """The schema with `additionalProperties: false` in every object, so that a misspelt
    name is an error."""
    for each in [schema, *schema.get("$defs", {}).values()]:
        each.pop("title", None)
        if "properties" in each:
            each.setdefault("additionalProperties", False)
    return {"type": "object", "properties": {}, **schema}


def _docstring(function: Callable[..., Any]) -> docstring_parser.Docstring:
    try:
        return docstring_parser.parse(inspect.getdoc(function) or "")
    except docstring_parser.ParseError as exc:
        raise InvalidTool(
            f"{_name(function)} has a docstring that cannot be read: {exc}."
        ) from exc


def _parameter_texts(docstring: docstring_parser.Docstring) -> dict[str, str]:
    return {
        parameter.arg_name: " ".join(parameter.description.split())
        for parameter in docstring.params
        if parameter.description
    }


def _refuse(function: Callable[..., Any], problem: str) -> NoReturn:
    raise InvalidTool(f"{_name(function)} {problem}")


def _name(function: Callable[..., Any]) -> str:
    return f"{function.__module__}.{function.__qualname__}"
