"""A conversation's choice among the tools that its user may use.

The conversation stores the names of tools that are switched off
(`options["disabled_tools"]`), so a tool that staff add is on in all conversations.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from django.utils.translation import gettext

from conversations.models import Conversation
from conversations.turns.tool_display import shorten
from tools.models import Tool

DESCRIPTION_LENGTH = 140  # characters


@dataclass(frozen=True, slots=True)
class ToolChoice:
    name: str
    label: str
    description: str
    is_on: bool


def tool_choices(user: Any, conversation: Conversation | None) -> list[ToolChoice]:
    """The tools that the conversation's preset allows; without a conversation those
    that need no preset."""
    available = Tool.objects.load_for(user)
    switched_off = _names_switched_off(conversation)
    labels = {name: tool.label for name, tool in available.tools.items()}
    descriptions = {name: tool.description for name, tool in available.tools.items()}
    descriptions |= dict.fromkeys(
        available.hosted, gettext("Run by the model's provider.")
    )
    allowed = _preset_tool_names(conversation)
    return [
        ToolChoice(
            name,
            labels.get(name) or name,
            shorten((words or "").partition("\n\n")[0], DESCRIPTION_LENGTH),
            name not in switched_off,
        )
        for name, words in sorted(descriptions.items())
        if available.is_allowed(name, allowed)
    ]


def choose_tools(
    user: Any,
    conversation: Conversation,
    chosen: Collection[str],
    *,
    is_new: bool = False,
) -> None:
    """Switch on the tools in `chosen`, and switch off the others that are shown. The
    page of a new conversation shows those that need no preset.

    Tools that are not shown stay as they are: the user may get access to them again.
    """
    visible = {choice.name for choice in tool_choices(user, conversation)}
    if is_new:
        visible &= {choice.name for choice in tool_choices(user, None)}
    switched_off = (_names_switched_off(conversation) - visible) | (
        visible - set(chosen)
    )
    if switched_off == _names_switched_off(conversation):
        return
    options = {**conversation.options, "disabled_tools": sorted(switched_off)}
    conversation.options = (
        options if switched_off else _without(options, "disabled_tools")
    )
    conversation.save(update_fields=["options"])


def _preset_tool_names(conversation: Conversation | None) -> set[str] | None:
    preset = conversation.preset if conversation else None
    return preset.tool_names() if preset else None


def _names_switched_off(conversation: Conversation | None) -> set[str]:
    options = conversation.options if conversation else {}
    return set(options.get("disabled_tools") or ())


def _without(options: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in options.items() if key != name}
