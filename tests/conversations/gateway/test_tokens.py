from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import User
from django.utils import timezone

from conversations.engine import notifications
from conversations.gateway.loop_resources import Resources
from conversations.gateway.token_access import Unauthorized
from conversations.models import AccessToken

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
async def gateway_resources() -> AsyncIterator[Resources]:
    resources = Resources()
    yield resources
    await resources.close()


@sync_to_async
def a_token(**fields: timedelta) -> tuple[AccessToken, dict[bytes, bytes]]:
    user, _ = User.objects.get_or_create(username="ada")
    until = timezone.now() + fields["lasts"] if fields else None
    row, text = AccessToken.issue(user, "test", until)
    return row, {b"authorization": f"Bearer {text}".encode()}


async def test_a_revoked_token_is_refused_at_once(gateway_resources: Resources):
    row, headers = await a_token()
    assert (await gateway_resources.tokens.authenticate(headers)).pk == row.pk
    await sync_to_async(row.revoke)()
    with pytest.raises(Unauthorized):
        await gateway_resources.tokens.authenticate(headers)


async def test_a_notified_process_drops_its_cached_tokens(
    gateway_resources: Resources,
):
    """Another process revokes it, so no signal is sent here."""
    row, headers = await a_token()
    await gateway_resources.tokens.authenticate(headers)
    await AccessToken.objects.filter(pk=row.pk).aupdate(revoked_at=timezone.now())
    notifications.dispatch("something new")
    assert (await gateway_resources.tokens.authenticate(headers)).pk == row.pk
    notifications.dispatch("tokens")
    with pytest.raises(Unauthorized):
        await gateway_resources.tokens.authenticate(headers)


async def test_so_is_one_whose_user_was_shut_out(gateway_resources: Resources):
    row, headers = await a_token()
    await gateway_resources.tokens.authenticate(headers)
    row.user.is_active = False
    await row.user.asave()
    with pytest.raises(Unauthorized):
        await gateway_resources.tokens.authenticate(headers)


async def test_one_that_has_expired_is_not_remembered_beyond_its_time(
    gateway_resources: Resources,
):
    _, headers = await a_token(lasts=timedelta(milliseconds=200))
    await gateway_resources.tokens.authenticate(headers)
    while True:
        try:
            await gateway_resources.tokens.authenticate(headers)
        except Unauthorized:
            return


async def test_its_use_is_noted_behind_its_back(gateway_resources: Resources):
    row, headers = await a_token()
    for _ in range(3):
        await gateway_resources.tokens.authenticate(headers)
    await gateway_resources.write_queue.close()
    await row.arefresh_from_db()
    assert row.last_used_at
