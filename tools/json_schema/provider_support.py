"""Which providers would refuse a tool's schema, or a hosted tool, and why. Pure.

Each refusal names the remedy. The codecs rewrite many schemas, so a refusal often means
that the model receives a changed schema, not that the request fails.

Source: https://platform.openai.com/docs/guides/structured-outputs#supported-schemas
Source: https://platform.claude.com/docs/en/build-with-claude/structured-outputs
Source: https://ai.google.dev/api/caching#FunctionDeclaration
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop, ngettext

from llm.adaptation import hosted_tools
from llm.capabilities import capabilities_of
from llm.providers import all_providers
from llm.wire.json_pointer import format_path
from tools.json_schema.arguments import Path

MAX_REASONS = 4  # listed for one provider family

SENT_REWRITTEN = gettext_noop(
    "Parley rewrites the schema; constraints that are lost are added to descriptions."
)
SENT_WITHOUT_STRICT = gettext_noop("Parley sends the tool without strict mode.")
SENT_UNCHANGED = gettext_noop("Parley sends the schema unchanged.")
REFUSED_OR_OMITTED = gettext_noop(
    "Parley refuses the request, or leaves the tool out if the request allows that."
)


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_COMBINATIONS = ("anyOf", "oneOf", "allOf", "enum", "not")
_STRICT_OPENAI = _words(
    "minLength maxLength patternProperties unevaluatedProperties unevaluatedItems"
    " propertyNames minProperties maxProperties contains minContains maxContains"
    " uniqueItems oneOf allOf not default if then else dependentRequired"
    " dependentSchemas"
)
_STRICT_ANTHROPIC = _words(
    "minimum maximum exclusiveMinimum exclusiveMaximum multipleOf minLength maxLength"
    " maxItems uniqueItems contains patternProperties propertyNames minProperties"
    " maxProperties oneOf not if then else"
)
_GEMINI = _words(
    "$id $defs $ref $anchor type format title description enum items prefixItems"
    " minItems maxItems minimum maximum anyOf properties additionalProperties required"
    " propertyOrdering"
)
_IGNORED_KEYWORDS = frozenset(
    {"$schema", "$comment", "examples", "example", "deprecated"}
)
_INSIDE_ONE = ("items", "additionalProperties", "not", "if", "then", "else", "contains")
_INSIDE_LIST = ("anyOf", "oneOf", "allOf", "prefixItems")
_INSIDE_MAP = ("properties", "$defs", "definitions", "patternProperties")

Problems = Iterator[tuple[Path, str]]


@dataclass(frozen=True, slots=True)
class Refusal:
    family: str
    reasons: tuple[str, ...]
    remedy: str


def find_refusals(parameters: Mapping[str, Any]) -> list[Refusal]:
    """One refusal for each provider family that does not accept the schema."""
    results = []
    for family, rule, remedy in _FAMILIES:
        if reasons := list(dict.fromkeys(_format_problems(rule(parameters)))):
            if len(reasons) > MAX_REASONS:
                left = len(reasons) - MAX_REASONS
                more = ngettext("and %(count)s more", "and %(count)s more", left)
                reasons[MAX_REASONS:] = [more % {"count": left}]
            results.append(Refusal(family, tuple(reasons), _(remedy)))
    return results


def _format_problems(problems: Problems) -> Iterator[str]:
    for path, text in problems:
        yield f"{format_path(path)}: {text}" if path else text


def _openai(root: Mapping[str, Any]) -> Problems:
    for name in _COMBINATIONS:
        if name in root:
            yield (), _("%(name)s is not allowed at the root") % {"name": repr(name)}


def _openai_strict(root: Mapping[str, Any]) -> Problems:
    yield from _openai(root)
    for path, schema in subschemas(root, ()):
        yield from _keywords(path, schema, _STRICT_OPENAI)
        if "$ref" in schema and len(schema) > 1:
            yield path, _("no other keyword is allowed beside '$ref'")
        if _is_object(schema):
            if schema.get("additionalProperties") is not False:
                yield path, _("'additionalProperties' must be false")
            optional = _optional(schema)
            if optional:
                yield (
                    path,
                    _("must be required: %(names)s") % {"names": ", ".join(optional)},
                )


def _anthropic(root: Mapping[str, Any]) -> Problems:
    for name in ("anyOf", "oneOf", "allOf"):
        if name in root:
            yield (), _("%(name)s is not allowed at the root") % {"name": repr(name)}


def _anthropic_strict(root: Mapping[str, Any]) -> Problems:
    yield from _anthropic(root)
    optional = unions = 0
    for path, schema in subschemas(root, ()):
        yield from _keywords(path, schema, _STRICT_ANTHROPIC)
        if schema.get("minItems", 0) not in (0, 1):
            yield path, _("'minItems' may be 0 or 1")
        if _is_object(schema) and schema.get("additionalProperties") is not False:
            yield path, _("'additionalProperties' must be false")
        optional += len(_optional(schema))
        unions += "anyOf" in schema or isinstance(schema.get("type"), list)
    if optional > 24:
        yield (
            (),
            _("%(count)s optional properties, of 24 allowed") % {"count": optional},
        )
    if unions > 16:
        yield (), _("%(count)s unions, of 16 allowed") % {"count": unions}
    if _is_recursive(root):
        yield (), _("it refers to itself")


def _gemini(root: Mapping[str, Any]) -> Problems:
    for path, schema in subschemas(root, ()):
        for name in schema.keys() - _GEMINI - _IGNORED_KEYWORDS - {"default"}:
            yield path, _("%(name)s is not known") % {"name": repr(name)}
        if any(not isinstance(each, str) for each in schema.get("enum", ())):
            yield path, _("'enum' may contain only strings")
    if _is_recursive(root):
        yield (), _("it refers to itself")


def _xai(root: Mapping[str, Any]) -> Problems:
    for path, schema in subschemas(root, ()):
        if schema.get("additionalProperties") is False:
            yield path, _("'additionalProperties' may not be false")


def _llama(root: Mapping[str, Any]) -> Problems:
    for path, schema in subschemas(root, ()):
        if "$ref" in schema:
            yield path, _("'$ref' is not followed")


_FAMILIES: tuple[tuple[str, Callable[[Mapping[str, Any]], Problems], str], ...] = (
    ("OpenAI, Azure", _openai, SENT_UNCHANGED),
    ("OpenAI, strict", _openai_strict, SENT_WITHOUT_STRICT),
    ("Anthropic", _anthropic, SENT_REWRITTEN),
    ("Anthropic, strict", _anthropic_strict, SENT_WITHOUT_STRICT),
    ("Gemini, Vertex", _gemini, SENT_REWRITTEN),
    ("xAI", _xai, SENT_REWRITTEN),
    ("Llama, Ollama, Groq", _llama, SENT_UNCHANGED),
)


# Walking a schema


def subschemas(
    schema: Any, path: tuple[str | int, ...]
) -> Iterator[tuple[tuple[str | int, ...], Mapping[str, Any]]]:
    """Yield `schema` and every schema inside it, each with its path."""
    if not isinstance(schema, Mapping):
        return
    yield path, schema
    for name in _INSIDE_ONE:
        yield from subschemas(schema.get(name), (*path, name))
    for name in _INSIDE_LIST:
        for number, each in enumerate(schema.get(name) or ()):
            yield from subschemas(each, (*path, name, number))
    for name in _INSIDE_MAP:
        for key, each in (schema.get(name) or {}).items():
            yield from subschemas(each, (*path, name, key))


def _keywords(
    path: Path, schema: Mapping[str, Any], refused: frozenset[str]
) -> Iterator[tuple[Path, str]]:
    for name in schema:
        if name in refused:
            yield path, _("%(name)s is not allowed") % {"name": repr(name)}


def _is_object(schema: Mapping[str, Any]) -> bool:
    return schema.get("type") == "object" or "properties" in schema


def _optional(schema: Mapping[str, Any]) -> list[str]:
    required = schema.get("required") or ()
    return [name for name in schema.get("properties") or {} if name not in required]


def _is_recursive(root: Mapping[str, Any]) -> bool:
    """True if a chain of references returns to a schema that it started from."""
    points_to = {
        "/".join(map(str, ("#", *path))): {
            inner["$ref"] for _, inner in subschemas(schema, ()) if "$ref" in inner
        }
        for path, schema in subschemas(root, ())
    }
    return any(
        _reaches(ref, ref, points_to) for refs in points_to.values() for ref in refs
    )


def _reaches(start: str, goal: str, points_to: Mapping[str, set[str]]) -> bool:
    seen: set[str] = set()
    waiting = list(points_to.get(start, ()))
    while waiting:
        if (ref := waiting.pop()) == goal:
            return True
        if ref not in seen:
            seen.add(ref)
            waiting += points_to.get(ref, ())
    return False


# Tools that a provider runs


@dataclass(frozen=True, slots=True)
class Host:
    """A provider, and why it refuses a hosted tool; `why_not` is "" if it accepts."""

    label: str
    why_not: str


def hosts_of(definition: Mapping[str, Any]) -> list[Host]:
    """Every provider whose hosted tools are known; those that accept this tool come
    first. Models of one provider differ: the check uses its default model."""
    hosts = []
    for provider in all_providers().values():
        codec, model = provider.codec(), provider.default_model
        capabilities = capabilities_of(provider.name, model, wire=codec.name)
        if capabilities.hosted_tools is None:
            continue
        why_not = hosted_tools.why_unsupported(
            codec, capabilities, definition, model=model
        )
        hosts.append(Host(provider.label, why_not or ""))
    return sorted(hosts, key=lambda host: (bool(host.why_not), host.label))


def find_hosted_refusals(definition: Mapping[str, Any]) -> list[Refusal]:
    """One refusal for each provider that does not accept the hosted tool."""
    return [
        Refusal(host.label, (host.why_not,), _(REFUSED_OR_OMITTED))
        for host in hosts_of(definition)
        if host.why_not
    ]
