"""Abstract model with the tools that an MCP server listed last."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from django.db import models, transaction
from django.utils import timezone

from tools.mcp.tool_comparison import ToolComparison, compare, leave_out
from tools.mcp.tool_definition import ToolDefinition
from tools.models.mcp_event import McpEvent
from tools.models.mcp_rejection import McpRejection
from tools.models.mcp_tool import McpTool

if TYPE_CHECKING:
    from django.db.models.fields.related_descriptors import RelatedManager

logger = logging.getLogger(__name__)


class ToolListing(models.Model):
    listing = models.JSONField(default=list, editable=False)
    listed_at = models.DateTimeField(null=True, editable=False)
    about = models.JSONField(default=dict, editable=False)
    error = models.TextField(blank=True, editable=False)
    #: What its program wrote before the error; "" for other servers.
    startup_output = models.TextField(
        blank=True, default="", db_default="", editable=False
    )

    if TYPE_CHECKING:  # of the model that inherits it
        name: models.CharField[str, str]
        tools: RelatedManager[McpTool]
        rejections: RelatedManager[McpRejection]

    class Meta:
        abstract = True

    @transaction.atomic
    def record_listing(
        self,
        found: Collection[ToolDefinition],
        about: Mapping[str, str],
        seconds: float | None = None,
    ) -> None:
        """`seconds`: how long the server took to list them."""
        self._record_event(McpEvent.Kind.LISTED, str(len(found)), seconds=seconds)
        self._store_listing(found, about)

    def _store_listing(
        self, found: Collection[ToolDefinition], about: Mapping[str, str]
    ) -> None:
        before, was_listed = self.listing, self.listed_at is not None
        self.listing = [definition.as_dict for definition in found]
        if was_listed and before != self.listing:
            names = _changed_names(before, self.listing)
            self._record_event(McpEvent.Kind.CHANGED, names)
        self.about, self.listed_at = dict(about), timezone.now()
        self.error = self.startup_output = ""
        self.save(
            update_fields=["listing", "about", "listed_at", "error", "startup_output"]
        )
        self._update_differences()

    @transaction.atomic
    def update_listing(
        self,
        found: Collection[ToolDefinition],
        about: Mapping[str, str],
        seconds: float | None = None,
    ) -> None:
        """Store a session's listing if it differs, and clear an error."""
        self._record_event(McpEvent.Kind.LISTED, str(len(found)), seconds=seconds)
        if self.listing != [definition.as_dict for definition in found]:
            logger.warning("MCP server %s lists different tools than before", self.name)
            self._store_listing(found, about)
        elif self.error:
            self._store_error("", "")

    @transaction.atomic
    def add_to_listing(
        self, found: Collection[ToolDefinition], about: Mapping[str, str]
    ) -> None:
        """Store what the session of one user lists. The server may show him fewer tools
        than others, so what he lacks stays."""
        new = {definition.name: definition for definition in found}
        stored = map(ToolDefinition.from_dict, self.listing)
        kept = [new.pop(each.name, each) for each in stored]
        listing = [*kept, *new.values()]
        if self.listing != [definition.as_dict for definition in listing]:
            logger.warning("MCP server %s lists different tools than before", self.name)
            self._store_listing(listing, about)

    def record_error(self, error: str, startup_output: str = "") -> None:
        """Why no session could be opened."""
        self._record_event(McpEvent.Kind.NOT_CONNECTED, error)
        if (self.error, self.startup_output) != (error, startup_output):
            self._store_error(error, startup_output)

    def record_failed_call(self, tool: str, text: str) -> None:
        self._record_event(McpEvent.Kind.CALL_FAILED, text, tool=tool)

    def _store_error(self, error: str, startup_output: str) -> None:
        self.error, self.startup_output = error, startup_output
        self.save(update_fields=["error", "startup_output"])

    def _record_event(
        self, kind: str, text: str, *, tool: str = "", seconds: float | None = None
    ) -> None:
        McpEvent.objects.record(self, kind, text, tool=tool, seconds=seconds)

    def _update_differences(self) -> None:
        """Update on each approved tool how it differs from the listing."""
        comparison = self.comparison
        changed = [change.listed.name for change in comparison.changed]
        gone = [definition.name for definition in comparison.gone]
        for difference, names in [
            (McpTool.Difference.CHANGED, changed),
            (McpTool.Difference.GONE, gone),
        ]:
            rows = self.tools.filter(remote_name__in=names)
            rows.update(difference=difference)
        self.tools.exclude(remote_name__in=[*changed, *gone]).update(difference="")

    @property
    def comparison(self) -> ToolComparison:
        """The approved tools compared with the last listing."""
        pinned = {each.remote_name: each.pinned for each in self.tools.all()}
        return compare(pinned, map(ToolDefinition.from_dict, self.listing))

    @property
    def to_review(self) -> ToolComparison:
        """The comparison without the definitions that staff have rejected."""
        rejected = {each.remote_name: each.digest for each in self.rejections.all()}
        return leave_out(self.comparison, rejected)


def _changed_names(
    before: Collection[Mapping[str, Any]], after: Collection[Mapping[str, Any]]
) -> str:
    """Names of the tools that were added (+), removed (-) or changed (~)."""
    old, new = ({each["name"]: each for each in all} for all in (before, after))
    return ", ".join(
        [
            *(f"+{name}" for name in new if name not in old),
            *(f"-{name}" for name in old if name not in new),
            *(f"~{name}" for name in new if name in old and old[name] != new[name]),
        ]
    )
