"""The allowlist of hosts that the server may reach, where OUTBOUND_HOSTS is set.

It holds for providers, tools, MCP servers, files by address, webhooks and identity
providers, after redirects too, whatever staff enter. Settings name the database, Redis
and the mail server already.
"""

from __future__ import annotations

from llm.conf import settings
from llm.errors import BadRequest


class HostNotListed(BadRequest):
    """This server may not reach that host: OUTBOUND_HOSTS does not name it."""

    code, status = "E_OUTBOUND_HOST", 403
    openai_code = "host_not_listed"


def is_listed(host: str) -> bool:
    """Whether the list names the host; without a list all are."""
    listed = settings.OUTBOUND_HOSTS
    if not listed:
        return True
    host = host.lower().strip("[]").rstrip(".")
    return any(_matches(host, pattern.lower()) for pattern in listed)


def check_listed(host: str) -> None:
    """Raises HostNotListed."""
    if not is_listed(host):
        raise HostNotListed


def _matches(host: str, pattern: str) -> bool:
    if pattern.startswith("*."):
        return host.endswith(pattern[1:]) and len(host) > len(pattern) - 1
    return host == pattern.strip("[]")
