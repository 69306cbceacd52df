"""Detection of input items that a provider's codec leaves out. No IO.

In: the request as it goes to its codec. Out: names for `degraded`. Codecs leave out
what is meaningless to their host: reasoning and tool results of another provider, also
those that a client sends, and fields that only one API has. None of this fails a
request, and all of it is reported.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from operator import or_
from typing import Any

from llm.wire import hosted_tools
from llm.wire.codec import Codec
from llm.wire.codecs.openai_responses.input_items import has_unknown_id
from llm.wire.item_prefix_cache import SplitItems, fold_items, proof_issuer
from llm.wire.items import CALL_OUTPUTS, SUMMARY, Item, proof_for
from llm.wire.request import Request

REASONING = "input (reasoning of another model)"
RECEIPTS = "input (what another provider's tools found)"
COMPACTION = "input (another provider's compaction)"
PHASES = "input (phases of messages)"
SOURCES = "input (sources of another model's text)"
SHOWN_LATER = "input (images of tools, shown after their outputs)"

#: How the names of those codecs begin that treat items unlike the others.
_APIS = ("openai_chat", "openai_responses")
_CUT_OFF = ("in_progress", "incomplete")
_ENCODED_CALLS = frozenset({"function_call", "custom_tool_call"})


def find_losses(request: Request, codec: Codec) -> list[str]:
    """Each name once, in the order of its first occurrence."""
    takes_phases = "phase" in getattr(codec, "options", ())
    api = next((name for name in _APIS if codec.name.startswith(name)), "")
    find = partial(_find_in_items, request, takes_phases, api)
    if not isinstance(request.items, SplitItems):
        return list(find(request.items))
    key = (takes_phases, api, proof_issuer(request))
    return list(fold_items(request.items, "losses", find, or_, key))


def _find_in_items(
    request: Request, takes_phases: bool, api: str, items: Sequence[Item]
) -> dict[str, None]:
    names_found: dict[str, None] = {}
    for item in items:
        # Most items of a long conversation are plain messages, which have only text.
        kind = item.get("type", "message")
        if kind in _ENCODED_CALLS:
            continue
        if kind != "message":
            names = _item_losses(item, kind, api)
        elif item.get("role") == "assistant":
            names = _answer_losses(item, takes_phases)
        else:
            continue
        if names and (
            names[0] == SHOWN_LATER or proof_for(request.issuer, item) is None
        ):
            names_found |= dict.fromkeys(names)
    return names_found


def _item_losses(item: Item, kind: str, api: str) -> Sequence[str]:
    if kind in CALL_OUTPUTS:
        is_late = api == "openai_chat" and _has_media(item["output"])
        return [SHOWN_LATER] if is_late else ()
    if kind == "reasoning":
        # Hosts that sign no reasoning never take it back, not even their own.
        return [REASONING] if item.get("provider_data") else ()
    if "provider_data" in item:
        is_receipt = kind in hosted_tools.RECEIPTS or kind.endswith("_call")
    elif api == "openai_responses":
        is_receipt = has_unknown_id(item)
    else:  # one that was cut off has found nothing
        is_receipt = kind in hosted_tools.RECEIPTS
        is_receipt = is_receipt and item.get("status") not in _CUT_OFF
    if kind == "compaction":
        return [COMPACTION] if is_receipt or SUMMARY in item else ()
    return [RECEIPTS] if is_receipt else ()


def _answer_losses(item: Item, takes_phases: bool) -> Sequence[str]:
    names = []
    if not takes_phases and item.get("phase"):
        names.append(PHASES)
    if _has_sources(item.get("content")):
        names.append(SOURCES)
    return names


def _has_media(output: Any) -> bool:
    return isinstance(output, list) and any(
        part.get("type") in ("input_image", "input_file") for part in output
    )


def _has_sources(content: Any) -> bool:
    if isinstance(content, list):
        for part in content:
            if part.get("annotations"):
                return True
    return False
