"""Who is refused over /v1 is in the log: with the reason, without the token."""

from __future__ import annotations

import logging

import pytest
from asgiref.sync import sync_to_async
from django.conf import settings as project_settings
from httpx import ASGITransport, AsyncClient

from conversations.models import AccessToken
from conversations.models.access_token import Scope
from tests.conversations.scene import a_user

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(
        project_settings.IS_SCALED, reason="the same in both deliveries"
    ),
]


@sync_to_async
def a_token() -> str:
    return AccessToken.issue(a_user(), "test", scopes=[Scope.SCIM])[1]


async def test_refusals_are_logged_without_the_token(caplog, monkeypatch):
    from project.server.application import application

    token = await a_token()
    transport = ASGITransport(application, client=("203.0.113.7", 4711))
    logger = logging.getLogger("conversations.gateway.app")
    monkeypatch.setattr(logger, "propagate", False)  # its parents have handlers
    logger.addHandler(caplog.handler)
    try:
        async with AsyncClient(transport=transport, base_url="http://here") as http:
            for text, path in (
                ("wrong-token-of-this-test", "/v1/models"),
                (token, "/v1/models/a%09b"),
            ):
                headers = {"Authorization": f"Bearer {text}"}
                await http.get(path, headers=headers)
    finally:
        logger.removeHandler(caplog.handler)
    wrong, narrow = (
        record.getMessage()
        for record in caplog.records
        if record.name == "conversations.gateway.app"
    )
    assert wrong.startswith("refused GET '/v1/models' from 203.0.113.7: 401 ")
    assert "invalid_api_key" in wrong
    assert narrow.startswith("refused GET '/v1/models/a\\tb' from 203.0.113.7: 403 ")
    assert "insufficient_scope" in narrow
    assert token not in caplog.text
    assert "wrong-token" not in caplog.text
