"""Import of HTTP tools from an OpenAPI document. Pure.

In: a document of version 3.0 or 3.1 (`openapi_document`). Out: an
`OpenApiOperation` for each path and method, with the settings of the tool, notes on
what is not supported, or the reason why it cannot be a tool. Nothing is fetched: a
reference to another document is such a reason.

Source: https://spec.openapis.org/oas/v3.1.1
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urljoin

from llm.wire.json_pointer import format_path
from tools.errors import InvalidDocument
from tools.http.openapi_schema import SchemaReader
from tools.http.validation import url_problems
from tools.json_schema.schema_mistakes import schema_mistakes

MAX_DESCRIPTION = 1000  # characters; OpenAI takes 1024
MAX_NAME = 64

_METHODS = ("get", "head", "post", "put", "patch", "delete")
_IGNORED_HEADERS = frozenset({"accept", "authorization", "content-type"})
_ARGUMENT = re.compile(r"[^A-Za-z0-9_]+")
_TOOL_NAME = re.compile(r"[^A-Za-z0-9_-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenApiOperation:
    key: str  # such as "GET /orders/{id}"
    name: str
    summary: str = ""
    description: str = ""
    method: str
    url: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    places: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: str = "json"
    notes: tuple[str, ...] = ()  # for staff
    problem: str = ""  # why it cannot be a tool


def read_operations(
    document: Mapping[str, Any], base_url: str = ""
) -> list[OpenApiOperation]:
    """All operations, in the document's order. `base_url` overrides its servers."""
    read = [
        _OperationReader(document, base_url, path, item, method).operation()
        for path, item in _paths(document)
        for method in _METHODS
        if isinstance(item.get(method), Mapping)
    ]
    return _with_unique_names([*read, *_unreadable_paths(document)])


def _paths(document: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for path, item in document["paths"].items():
        try:
            resolved = SchemaReader(document).resolve(item)
        except InvalidDocument:
            continue  # see `_unreadable_paths`
        if isinstance(resolved, Mapping) and str(path).startswith("/"):
            yield str(path), resolved


def _unreadable_paths(document: Mapping[str, Any]) -> Iterator[OpenApiOperation]:
    """An entry for each path whose operations are in another document, or nowhere."""
    for path, item in document["paths"].items():
        try:
            SchemaReader(document).resolve(item)
        except InvalidDocument as exc:
            name, problem = _tool_name(str(path)), str(exc)
            yield OpenApiOperation(key=str(path), name=name, method="", problem=problem)


class _OperationReader:
    """Reads one operation; collects its parameters, body, headers and notes."""

    def __init__(
        self,
        document: Mapping[str, Any],
        base_url: str,
        path: str,
        item: Mapping[str, Any],
        method: str,
    ) -> None:
        self._document = document
        self._base_url = base_url
        self._path = path
        self._item = item
        self._method = method
        self._operation: Mapping[str, Any] = item[method]
        self._reader = SchemaReader(document)
        self._properties: dict[str, Any] = {}
        self._required: list[str] = []
        self._places: dict[str, str] = {}
        self._headers: dict[str, str] = {}
        self._body = "json"
        self._notes: list[str] = []

    def operation(self) -> OpenApiOperation:
        key = f"{self._method.upper()} {self._path}"
        operation = OpenApiOperation(
            key=key,
            name=_tool_name(str(self._operation.get("operationId") or key)),
            summary=_line(self._operation.get("summary"), 100),
            description=self._description(),
            method=self._method.upper(),
        )
        try:
            url = self._url()
            self._read_parameters()
            self._read_body()
            parameters = self._parameters()
            if self._operation.get("deprecated") is True:
                self._notes.append("It is deprecated.")
            self._notes += [_describe_scheme(*each) for each in self._schemes()]
        except InvalidDocument as exc:
            return replace(operation, problem=str(exc))
        except (AttributeError, KeyError, TypeError, RecursionError) as exc:
            # The document is untrusted: a text may stand where an object must be.
            problem = f"it is not valid OpenAPI ({type(exc).__name__})."
            return replace(operation, problem=problem)
        return replace(
            operation,
            url=url,
            parameters=parameters,
            places=self._places,
            headers=self._headers,
            body=self._body,
            notes=tuple(self._notes),
        )

    def _description(self) -> str:
        texts_found = (
            self._operation.get("summary"),
            self._operation.get("description"),
        )
        texts = [each.strip() for each in texts_found if isinstance(each, str)]
        whole = "\n\n".join(dict.fromkeys(filter(None, texts)))
        return whole[:MAX_DESCRIPTION] or f"{self._method.upper()} {self._path}"

    # The address

    def _url(self) -> str:
        names = set(re.findall(r"\{([^{}]+)\}", self._path))
        if len({_argument(name) for name in names}) < len(names):
            raise InvalidDocument(
                "its path has names that differ only in characters other than A-Z, a-z,"
                " 0-9 and _."
            )
        path = re.sub(
            r"\{([^{}]+)\}", lambda match: f"{{{_argument(match[1])}}}", self._path
        )
        url = f"{self._server().rstrip('/')}{path}"
        for problem in url_problems(url):
            raise InvalidDocument(
                f"its address cannot be used: {url!r:.200}. {problem}"
            )
        return url

    def _server(self) -> str:
        for level in (self._operation, self._item, self._document):
            if servers := level.get("servers"):
                server = _server_url(servers[0])
                break
        else:
            server = "/"
        if "://" in server:
            return self._base_url or server
        if not self._base_url:
            raise InvalidDocument(
                "the document has no complete server URL: enter the address of the API."
            )
        return urljoin(self._base_url, server) if server != "/" else self._base_url

    # The arguments

    def _read_parameters(self) -> None:
        parameters: dict[tuple[str, str], Mapping[str, Any]] = {}
        for level in (self._item, self._operation):
            for each in level.get("parameters") or ():
                parameter = self._reader.resolve(each)
                parameters[str(parameter["name"]), str(parameter["in"])] = parameter
        for (name, where), parameter in parameters.items():
            self._read_parameter(name, where, parameter)

    def _read_parameter(
        self, name: str, where: str, parameter: Mapping[str, Any]
    ) -> None:
        is_required = parameter.get("required") is True
        if where == "header" and name.lower() in _IGNORED_HEADERS:
            return  # OpenAPI says that these headers shall be ignored
        if where == "header" and name.lower() == "idempotency-key":
            self._notes.append(
                "It supports idempotency keys: choose the matching replay class."
            )
            return
        if where == "cookie":
            if is_required:
                raise InvalidDocument(f"it needs the cookie {name!r}.")
            self._notes.append(f"The cookie {name!r} is never sent.")
            return
        if where == "header" and name.lower() in self._key_headers():
            return  # staff enter the key, and a note says so
        if style := self._unsupported_style(where, parameter):
            if is_required or where == "path":
                raise InvalidDocument(
                    f"its parameter {name!r} has the style {style}, which is not"
                    " supported."
                )
            self._notes.append(
                f"The parameter {name!r} is left out: its style {style} is not"
                " supported."
            )
            return
        schema = self._reader.read(_schema_of(parameter))
        if isinstance(schema, dict) and isinstance(parameter.get("description"), str):
            schema.setdefault("description", parameter["description"].strip())
        kind = _location_kind(where, parameter)
        sent_as = _argument(name) if where == "path" else name
        self._add(name, kind, sent_as, schema, required=is_required or where == "path")

    def _unsupported_style(self, where: str, parameter: Mapping[str, Any]) -> str:
        """The name of a style that would be sent in another way; "" if it is not."""
        usual = "form" if where == "query" else "simple"
        style = str(parameter.get("style", usual))
        if style == "deepObject" and where == "query":
            return ""
        schema = self._reader.resolve(parameter.get("schema"))
        is_object = isinstance(schema, Mapping) and (
            "object" in _list(schema.get("type")) or "properties" in schema
        )
        if style == usual:
            return f"{style!r} of an object" if is_object else ""
        is_array = isinstance(schema, Mapping) and "array" in _list(schema.get("type"))
        explodes_as_form = parameter.get("explode") is True or not is_array
        if where == "query" and explodes_as_form and not is_object:
            return ""  # an array by its repeated name, or a single value
        return repr(style)

    def _read_body(self) -> None:
        if not (request_body := self._operation.get("requestBody")):
            return
        if self._method in ("get", "head"):
            self._notes.append("Its body is left out, as GET and HEAD have none.")
            return
        body = self._reader.resolve(request_body)
        is_required = body.get("required") is True
        content = {str(kind).lower(): each for kind, each in body["content"].items()}
        media = _media_type(content)
        if media is None:
            kinds = ", ".join(content)
            if is_required:
                raise InvalidDocument(f"it sends {kinds}, which is not supported.")
            self._notes.append(f"No body is sent: {kinds} is not supported.")
            return
        schema = (content[media] or {}).get("schema") or {}
        self._add_body(media, schema, is_required=is_required)

    def _add_body(self, media: str, schema: Any, *, is_required: bool) -> None:
        is_form = media == "application/x-www-form-urlencoded"
        self._body = "form" if is_form else "json"
        if not is_form and "*" not in media and media != "application/json":
            self._headers["Content-Type"] = media
        is_text = media.startswith("text/")
        if not is_text and (whole := self._reader.fields(schema)):
            if self._reader.resolve(schema).get("additionalProperties"):
                self._notes.append("Fields of its body without a name are left out.")
            for name, each in whole["properties"].items():
                if not (isinstance(each, Mapping) and each.get("readOnly") is True):
                    # Each call sends a body, also where it is optional.
                    needed = name in whole["required"]
                    read = self._reader.read(each)
                    self._add(str(name), "body", str(name), read, required=needed)
            return
        if is_form:
            raise InvalidDocument("its form has no named fields.")
        read = self._reader.read({"type": "string"} if is_text else schema)
        self._add("body", "whole_body", "body", read, required=is_required)

    def _add(
        self, name: str, kind: str, sent_as: str, schema: Any, *, required: bool
    ) -> None:
        argument = self._free_argument(name, kind)
        if not name.isascii() and isinstance(schema, dict):  # its letters are lost
            text = schema.get("description")
            schema["description"] = f"{name}: {text}" if text else name
        self._properties[argument] = schema
        if required:
            self._required.append(argument)
        self._places[argument] = f"{kind}:{sent_as}" if sent_as != argument else kind

    def _free_argument(self, name: str, kind: str) -> str:
        argument = _argument(name)
        if argument in self._properties:  # an id in the path, another in the body
            argument = _argument(f"{argument}_{kind}")
        base, number = argument, 2
        while argument in self._properties:
            suffix = f"_{number}"
            argument, number = f"{base[: MAX_NAME - len(suffix)]}{suffix}", number + 1
        return argument

    def _parameters(self) -> dict[str, Any]:
        parameters: dict[str, Any] = {
            "type": "object",
            "properties": self._properties,
            "required": self._required,
            "additionalProperties": False,
        }
        if self._reader.defs:
            parameters["$defs"] = self._reader.defs
        for path, text in schema_mistakes(parameters):
            raise InvalidDocument(
                f"its schema is wrong at {format_path(path)}: {text}."
            )
        return parameters

    # Authentication

    def _key_headers(self) -> set[str]:
        """The headers, in lower case, that authenticate by a key."""
        return {
            str(scheme.get("name")).lower()
            for scheme, _ in self._schemes()
            if scheme.get("type") == "apiKey" and scheme.get("in") == "header"
        }

    def _schemes(self) -> Iterator[tuple[Mapping[str, Any], str]]:
        """Yield each scheme of the first security requirement, and its name."""
        requirements = (
            self._operation.get("security", self._document.get("security")) or []
        )
        components = self._document.get("components") or {}
        schemes = components.get("securitySchemes") or {}
        for name in (
            requirements[0]
            if requirements and isinstance(requirements[0], Mapping)
            else ()
        ):
            scheme = schemes.get(name)
            yield (scheme if isinstance(scheme, Mapping) else {}), str(name)


def _schema_of(parameter: Mapping[str, Any]) -> Any:
    if "schema" in parameter:
        return parameter["schema"]
    for media in (parameter.get("content") or {}).values():
        return media.get("schema") or {}
    return {"type": "string"}


def _location_kind(where: str, parameter: Mapping[str, Any]) -> str:
    if where != "query":
        return where
    style = parameter.get("style", "form")
    if style == "deepObject":
        return "query_deep"
    explodes = parameter.get("explode", style == "form")
    return "query" if explodes else "query_commas"


def _media_type(content: Mapping[str, Any]) -> str | None:
    """The supported media type that comes first in the order of preference."""
    for matches in (
        r"application/json",
        r"application/x-www-form-urlencoded",
        r"application/[\w.-]+\+json",
        r"text/plain",
        r"\*/\*|application/\*",
    ):
        for media in content:
            if re.fullmatch(matches, media.partition(";")[0].strip()):
                return media
    return None


def _server_url(server: Mapping[str, Any]) -> str:
    variables = server.get("variables") or {}
    return re.sub(
        r"\{([^{}]+)\}",
        lambda match: str((variables.get(match[1]) or {}).get("default", match[0])),
        str(server["url"]),
    )


def _describe_scheme(scheme: Mapping[str, Any], name: str) -> str:
    match scheme:
        case {"type": "apiKey", "in": "header", "name": str(header)}:
            return f"It expects a key in the header {header}."
        case {"type": "apiKey", "in": str(where)}:
            return f"It expects a key in the {where}, which is not supported."
        case {"type": "http", "scheme": str(kind)}:
            return f"It expects the header Authorization: {kind.capitalize()} …"
        case {"type": "oauth2" | "openIdConnect"}:
            return "It expects an OAuth token: Authorization: Bearer …"
    return f"It expects {name!r}."


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


# Names


def _argument(name: str) -> str:
    """A name that is valid in a placeholder and accepted by every provider."""
    return _ARGUMENT.sub("_", name).strip("_")[:MAX_NAME] or "value"


def _tool_name(text: str) -> str:
    name = _TOOL_NAME.sub("_", text).strip("_-") or "tool"
    return f"_{name}"[:MAX_NAME] if name[0].isdigit() else name[:MAX_NAME]


def _with_unique_names(found: list[OpenApiOperation]) -> list[OpenApiOperation]:
    taken: set[str] = set()
    numbers: dict[str, int] = {}  # the next suffix to try for each name
    unique = []
    for each in found:
        name, number = each.name, numbers.get(each.name, 2)
        while name in taken:
            suffix = f"_{number}"
            name, number = f"{each.name[: MAX_NAME - len(suffix)]}{suffix}", number + 1
        taken.add(name)
        numbers[each.name] = number
        unique.append(replace(each, name=name))
    return unique


def _line(text: Any, limit: int) -> str:
    return " ".join(text.split())[:limit] if isinstance(text, str) else ""
