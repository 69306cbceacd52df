from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import User
from django.utils import timezone

from conversations.gateway.means import Means
from conversations.gateway.tokens import Unauthorized
from conversations.models import AccessToken

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
async def means() -> AsyncIterator[Means]:
    means = Means()
    yield means
    await means.close()


@sync_to_async
def a_token(**fields: timedelta) -> tuple[AccessToken, dict[bytes, bytes]]:
    user, _ = User.objects.get_or_create(username="ada")
    until = timezone.now() + fields["lasts"] if fields else None
    row, text = AccessToken.issue(user, "test", until)
    return row, {b"authorization": f"Bearer {text}".encode()}


async def test_a_revoked_token_is_refused_at_once(means: Means):
    row, headers = await a_token()
    assert (await means.tokens.find(headers)).pk == row.pk
    await sync_to_async(row.revoke)()
    with pytest.raises(Unauthorized):
        await means.tokens.find(headers)


async def test_so_is_one_whose_user_was_shut_out(means: Means):
    row, headers = await a_token()
    await means.tokens.find(headers)
    row.user.is_active = False
    await row.user.asave()
    with pytest.raises(Unauthorized):
        await means.tokens.find(headers)


async def test_one_that_has_expired_is_not_remembered_beyond_its_time(means: Means):
    _, headers = await a_token(lasts=timedelta(milliseconds=200))
    await means.tokens.find(headers)
    while True:
        try:
            await means.tokens.find(headers)
        except Unauthorized:
            return


async def test_its_use_is_noted_behind_its_back(means: Means):
    row, headers = await a_token()
    for _ in range(3):
        await means.tokens.find(headers)
    await means.records.close()
    await row.arefresh_from_db()
    assert row.last_used_at
