"""Presets as models: `preset/<name>` answers with its instructions, tools and context.

A stored response opens a conversation with the preset, which the engine then follows. A
stateless one gets the same here: the preset's options are defaults, its instructions
and context stand before the request's, and its limits apply.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from conversations.context import LoadedSource, Reader, render
from conversations.engine.loading import preset_limits
from conversations.engine.loading.tool_rate_limit import limit_calls
from conversations.gateway.forwarding.instructions import surround
from conversations.models import AccessToken, Preset
from llm import router
from llm.errors import BadRequest, ModelNotAvailable
from llm.models import LanguageModel
from llm.provider import Route
from llm.wire.forwarding.forwarded_body import ForwardedBody
from llm.wire.items import new_id
from llm.wire.request import Request
from tools.execution.without_approval import always_needs_approval, without_approval
from tools.models import Tool as ToolRow
from tools.registry import RuntimeTool

PREFIX = "preset/"


class PresetNeedsStore(BadRequest):
    """This preset limits what a message may cost; use it with stored responses."""

    code = "E_PRESET_NEEDS_STORE"


class OtherPreset(BadRequest):
    """The conversation that this request continues has another preset."""

    code = "E_OTHER_PRESET"


@dataclass(frozen=True, slots=True, kw_only=True)
class PresetUse:
    """A preset as requests need it, read from its rows once for several."""

    preset: Preset
    tools: Mapping[str, RuntimeTool] = field(default_factory=dict)
    sources: Sequence[LoadedSource] = ()
    allowed_models: Collection[int] = ()  # ids; none: all

    def check_alternatives(
        self, names: Collection[str], found: Sequence[Route]
    ) -> None:
        """Check models that a body names besides `model`; `found` are those with rows.
        Raises ModelNotInPreset."""
        if not self.allowed_models:
            return
        allowed = {r.model for r in found if r.model_id in self.allowed_models}
        if any(allowed.isdisjoint((n, n.partition(":")[0])) for n in names):
            raise preset_limits.ModelNotInPreset

    def tools_beside(
        self, client_names: Collection[Any], token: AccessToken
    ) -> dict[str, RuntimeTool]:
        """Without those that always need a person's approval, that the client declares
        itself, and that the token may not use."""
        return {
            name: without_approval(tool)
            for name, tool in self.tools.items()
            if name not in client_names
            and token.may_use_tool(name)
            and not always_needs_approval(tool)
        }

    def apply(self, request: Request) -> Request:
        """The request with the preset's instructions before its own, and its limit."""
        request = _with_instructions(request, before=self.preset.instructions)
        body, most = request.forwarded, self.preset.max_tokens
        if body is not None and most is not None:
            request = replace(request, forwarded=self._limit_output(body, most))
        return preset_limits.limit_output(self.preset, request)

    def _limit_output(self, body: ForwardedBody, most: int) -> ForwardedBody:
        limit, convert = partial(preset_limits.limit_output, self.preset), body.convert
        body = body.limit_output(most)
        return replace(body, convert=lambda route: limit(convert(route)))


def load(name: str, user: Any) -> tuple[PresetUse, LanguageModel]:
    """The preset `preset/<name>` and its model. Raises ModelNotAvailable."""
    found = Preset.objects.available_to(user).select_related("language_model__provider")
    preset = found.filter(name=name.removeprefix(PREFIX)).first()
    if preset is None:
        raise ModelNotAvailable(
            f"There is no model {name[:64]!r}; choose another one.", param="model"
        )
    use = PresetUse(
        preset=preset,
        tools=_load_tools(preset, user),
        sources=[each for each in preset.context_sources(user) if not each.on_demand],
        allowed_models=preset.allowed_model_ids(),
    )
    return use, preset.language_model or router.find_model(None, user=user)


def load_routes(name: str, user: Any) -> tuple[PresetUse, list[Route]]:
    """The routes of its model and fallbacks. Raises ModelNotAvailable, InvalidKey,
    ModelNotInPreset."""
    use, model = load(name, user)
    if (
        not LanguageModel.objects.usable()
        .available_to(user)
        .filter(pk=model.pk)
        .exists()
    ):
        raise ModelNotAvailable(param="model")
    routes = router.routes_of(router.route_of(model, user=user), user=user)
    allowed = preset_limits.filter_routes(use.preset, routes)
    options = use.preset.options
    return use, [replace(r, defaults={**r.defaults, **options}) for r in allowed]


def list_presets(user: Any) -> dict[str, tuple[Preset, LanguageModel]]:
    """By the names that requests use: presets whose model the user may call."""
    usable = {model.pk: model for model in router.available(user)}
    default = next((each for each in usable.values() if each.is_default), None)
    found = {}
    for preset in Preset.objects.available_to(user):
        chosen = preset.language_model_id
        model = usable.get(chosen) if chosen else default
        if model is not None:
            found[f"{PREFIX}{preset.name}"] = (preset, model)
    return found


def _load_tools(preset: Preset, user: Any) -> dict[str, RuntimeTool]:
    """The tools that the preset names; one that names none brings none."""
    if not (names := preset.tool_names()):
        return {}
    permitted = ToolRow.objects.load_for(user)
    return {
        name: limit_calls(replace(tool, blocking=True), user)
        if tool.calls_per_minute
        else replace(tool, blocking=True)
        for name, tool in permitted.tools.items()
        if permitted.is_allowed(name, by_preset=names)
    }


def check_cost(use: PresetUse) -> None:
    """Raises PresetNeedsStore: without its turns, its cost is not counted."""
    if use.preset.max_cost is not None:
        raise PresetNeedsStore(param="model")


async def with_context(use: PresetUse, request: Request, token: AccessToken) -> Request:
    """For a stateless response: the context that the preset's sources have now. Raises
    PresetNeedsStore."""
    check_cost(use)
    rendered = await render(use.sources, _reader_of(token))
    blocks = [
        f"### {each.source.title}\n\n{each.text}"
        for each in rendered
        if not each.reason and each.text
    ]
    return _with_instructions(request, after="\n\n".join(blocks))


def _with_instructions(request: Request, before: str = "", after: str = "") -> Request:
    """The request with the texts around its instructions, in all of its forms."""
    if (body := request.forwarded) is None:
        texts = filter(None, [before, request.instructions, after])
        return replace(request, instructions="\n\n".join(texts))
    fields = surround(body.api, body.fields, before, after)
    add, convert = partial(_with_instructions, before=before, after=after), body.convert
    forwarded = replace(body, fields=fields, convert=lambda route: add(convert(route)))
    return replace(request, forwarded=forwarded)


def _reader_of(token: AccessToken) -> Reader:
    return Reader(
        user_id=token.user_id,
        username=token.user.get_username(),
        conversation_id=new_id("conv"),
    )
