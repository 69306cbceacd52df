"""A long body is searched once for what its host cannot express."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import pytest

from conversations.gateway import gateway_request
from conversations.gateway.dialects import CHAT
from conversations.gateway.gateway_request import GatewayRequest


def test_a_body_is_searched_once_for_its_headers_and_explanation(
    monkeypatch: pytest.MonkeyPatch,
):
    find = Mock(return_value=["messages.new_field"])
    monkeypatch.setattr(gateway_request, "find_losses", find)
    request = _request({"messages": []})
    names = [request.dropped_names(()), request.dropped_names(["seed"])]
    assert names == [["messages.new_field"], ["messages.new_field", "seed"]]
    assert find.call_count == 1
    replace(request, body={}).dropped_names(())
    assert find.call_count == 2  # another body


def _request(body: dict[str, Any]) -> GatewayRequest:
    others = {
        name: Mock()
        for name in ("token", "parley_options", "chain", "route", "request")
    }
    return GatewayRequest(dialect=CHAT, body=body, host_speaks_dialect=False, **others)
