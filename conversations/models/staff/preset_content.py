"""What a preset does, apart from who may use it: its limits, and its content as JSON.

Versions and drafts hold this JSON. It names models, tools and sources.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Self

from django.apps import apps
from django.core.exceptions import ValidationError
from django.core.validators import MinValueValidator
from django.db import models, transaction
from django.utils.translation import gettext_lazy as _

from conversations import context
from llm.models import LanguageModel
from tools.models import Tool

Content = dict[str, Any]

#: Columns that the content has as they are.
COLUMNS = (
    "label",
    "description",
    "instructions",
    "options",
    "only_named_tools",
    "max_tokens",
    "max_tool_calls",
)
FIELDS = (*COLUMNS, "max_cost", "language_model", "allowed_models", "tools", "sources")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Links:
    """The rows that a content names."""

    language_model: LanguageModel | None
    models: Sequence[LanguageModel]
    tools: Sequence[Tool]
    sources: Sequence[Any]  # in their order
    gone: Sequence[str]  # names of rows that no longer exist


class PresetContent(models.Model):
    """Base of `Preset`: limits of a turn, and its content as JSON."""

    allowed_models = models.ManyToManyField(
        LanguageModel,
        blank=True,
        related_name="+",
        help_text=_(
            "Models that conversations with this preset may use; empty for all that"
            " their user may use."
        ),
    )
    max_tokens = models.PositiveIntegerField(
        _("tokens per turn"),
        null=True,
        blank=True,
        validators=[MinValueValidator(1)],
        help_text=_(
            "Read and written, by all model calls of a turn; there is no further call"
            " once they are used. An answer never has more. Empty for no limit."
        ),
    )
    max_cost = models.DecimalField(
        _("cost per turn"),
        max_digits=12,
        decimal_places=6,
        null=True,
        blank=True,
        validators=[MinValueValidator(Decimal("0.000001"))],
        help_text=_(
            "USD; there is no further model call once it is spent. Empty for no limit"
            " but the site's."
        ),
    )
    max_tool_calls = models.PositiveIntegerField(
        _("tool calls per turn"), null=True, blank=True, help_text=_("Empty: no limit.")
    )

    #: Links of a draft, which are in memory only.
    _pinned: _Links | None = None

    class Meta:
        abstract = True

    # The content as JSON

    def content(self) -> Content:
        row: Any = self
        return content_of(
            row,
            models=self.linked_models(),
            tools=self.linked_tools(),
            sources=list(row.links.values_list("source__name", flat=True)),
        )

    def linked_models(self) -> Sequence[LanguageModel]:
        if self._pinned is not None:
            return self._pinned.models
        row: Any = self
        return list(row.allowed_models.select_related("provider"))

    def linked_tools(self) -> Sequence[Tool]:
        if self._pinned is not None:
            return self._pinned.tools
        row: Any = self
        return list(row.tools.all())

    @transaction.atomic
    def set_content(self, content: Mapping[str, Any]) -> list[str]:
        """Store the content. Returns the names of rows that no longer exist. Raises
        ValidationError."""
        row: Any = self
        links = _find_links(content)
        _set_columns(row, content, links)
        row.full_clean()
        row.save()
        row.allowed_models.set(links.models)
        row.tools.set(links.tools)
        row.links.all().delete()
        for position, source in enumerate(links.sources):
            row.links.create(source=source, position=position)
        return list(links.gone)

    def with_content(self, content: Mapping[str, Any]) -> Self:
        """A copy in memory, to run turns with. Raises ValidationError."""
        row: Any = copy.copy(self)
        row._state = copy.copy(self._state)
        row._state.fields_cache = dict(self._state.fields_cache)
        row._pinned = _find_links(content)
        _set_columns(row, content, row._pinned)
        row.clean()
        drafted: Self = row
        return drafted

    # As turns use it

    def context_sources(self, user: Any) -> list[context.LoadedSource]:
        """The enabled sources that `user` may use, in the preset's order."""
        if self._pinned is not None:
            sources = [s for s in self._pinned.sources if s.enabled]
        else:
            row: Any = self
            links = row.links.filter(source__enabled=True)
            links = links.select_related("source__mcp_server")
            sources = [link.source for link in links]
        refused = _find_refused(sources, user)
        return [s.to_source() for s in sources if s.pk not in refused]

    def tool_names(self) -> set[str] | None:
        """Names of the tools that may be used; None for all tools. One query.

        When the last named tool is deleted, the set is empty and not None, because
        `only_named_tools` is set.
        """
        row: Any = self
        if self._pinned is not None:
            names = {tool.name for tool in self._pinned.tools}
        else:
            names = set(row.tools.values_list("name", flat=True))
        return names if names or row.only_named_tools else None

    def allowed_model_ids(self) -> Collection[int]:
        """Keys of the models that may be used; empty for all models. One query."""
        if self._pinned is not None:
            return {model.pk for model in self._pinned.models}
        row: Any = self
        return set(row.allowed_models.values_list("pk", flat=True))


def content_of(
    row: Any,
    *,
    models: Sequence[LanguageModel],
    tools: Sequence[Tool],
    sources: Sequence[str],
) -> Content:
    """The columns of a row with these links."""
    model = row.language_model
    return {
        **{name: getattr(row, name) for name in COLUMNS},
        "only_named_tools": bool(row.only_named_tools or tools),
        "max_cost": _to_text(row.max_cost),
        "language_model": model.full_name if model else None,
        "allowed_models": sorted(each.full_name for each in models),
        "tools": sorted(tool.name for tool in tools),
        "sources": list(sources),
    }


def _find_refused(sources: Sequence[Any], user: Any) -> set[int]:
    """Keys of the sources that are for groups to which the user does not belong."""
    if not sources or user.is_superuser:
        return set()
    restricted = type(sources[0]).groups.through.objects.filter(
        contextsource__in=[source.pk for source in sources]
    )
    rows = list(restricted.values_list("contextsource_id", "group_id"))
    if not rows:
        return set()
    own = set(user.groups.values_list("pk", flat=True))
    permitted = {source_id for source_id, group_id in rows if group_id in own}
    return {source_id for source_id, _ in rows} - permitted


def _find_links(content: Mapping[str, Any]) -> _Links:
    """Raises ValidationError where leaving a row out would allow more than before."""
    name = content.get("language_model")
    found = _find_models([*content.get("allowed_models", ()), *filter(None, [name])])
    allowed = [found[n] for n in content.get("allowed_models", ()) if n in found]
    if name and name not in found:
        text = _("The model %(name)r no longer exists.")
        raise ValidationError(text, params={"name": name})
    if content.get("allowed_models") and not allowed:
        raise ValidationError(_("None of the allowed models exists any more."))
    tools = {row.name: row for row in _rows(Tool, content.get("tools", ()))}
    Source = apps.get_model("conversations", "ContextSource")
    sources = {row.name: row for row in _rows(Source, content.get("sources", ()))}
    wanted = [*content.get("allowed_models", ()), *content.get("tools", ())]
    known = {*found, *tools, *sources}
    return _Links(
        language_model=found[name] if name else None,
        models=allowed,
        tools=list(tools.values()),
        sources=[sources[n] for n in content.get("sources", ()) if n in sources],
        gone=[n for n in [*wanted, *content.get("sources", ())] if n not in known],
    )


def _find_models(names: Sequence[str]) -> dict[str, LanguageModel]:
    """By their full names."""
    own = {name.partition("/")[2] for name in names}
    rows = LanguageModel.objects.filter(name__in=own).select_related("provider")
    return {row.full_name: row for row in rows if row.full_name in names}


def _rows(model: type[models.Model], names: Sequence[str]) -> Any:
    return model._default_manager.filter(name__in=names).select_related("mcp_server")


def _set_columns(row: Any, content: Mapping[str, Any], links: _Links) -> None:
    """One that an older version does not have gets its default."""
    for name in COLUMNS:
        column = row._meta.get_field(name)
        setattr(row, name, content.get(name, column.get_default()))
    cost = content.get("max_cost")
    row.max_cost = None if cost is None else Decimal(cost)
    row.only_named_tools = bool(row.only_named_tools or content.get("tools"))
    row.language_model = links.language_model


def _to_text(value: Decimal | None) -> str | None:
    """The same for equal values."""
    return None if value is None else f"{value.normalize():f}"
