"""The life of a key: who added it, expiry, drain, rotation with overlap, weights."""

from __future__ import annotations

import hashlib
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from llm import router
from llm.errors import InvalidKey
from llm.keys import pool as key_pool
from llm.models import ApiKey, Provider

pytestmark = pytest.mark.django_db

PLANTED = "sk-planted-0123456789-wxyz"
HOUR = timedelta(hours=1)


@pytest.fixture
def provider() -> Provider:
    provider = Provider.objects.create(name="Groq", kind="groq")
    provider.models.create(name="llama-3")
    return provider


def chosen(provider: Provider, times: int = 50, now: float | None = None) -> Counter:
    """How often each key is drawn, by label."""
    route = router.route_of(provider.models.get())
    pool = key_pool.pool_of(route)
    assert pool is not None
    at = timezone.now().timestamp() if now is None else now
    drawn = [pool.choose("llama-3", at) for _ in range(times)]
    return Counter(key.label for key in drawn if key)


@pytest.mark.parametrize("column", ["expires_at", "drains_at"])
def test_a_key_at_its_end_gets_no_calls(provider: Provider, column: str):
    now = timezone.now()
    provider.keys.create(label="old", secret=PLANTED, **{column: now - HOUR})
    provider.keys.create(label="new", secret=PLANTED, **{column: now + HOUR})
    assert set(chosen(provider)) == {"new"}
    # The pool need not be read again for a key to reach its end.
    later = (now + 2 * HOUR).timestamp()
    assert chosen(provider, now=later) == {}
    assert [key.label for key in provider.keys.usable()] == ["new"]


def test_without_another_key_the_error_says_that_none_is_active(provider: Provider):
    provider.keys.create(secret=PLANTED, expires_at=timezone.now() - HOUR)
    with pytest.raises(InvalidKey, match="no active key"):
        router.route_of(provider.models.get())


def test_a_rest_in_memory_does_not_hide_that_a_key_drains(provider: Provider):
    key = provider.keys.create(secret=PLANTED)
    route = router.route_of(provider.models.get())
    pool = key_pool.pool_of(route)
    now = timezone.now().timestamp()
    pool.get(key.pk).rest(now + 1, "E_LLM_RATE_LIMIT: x", now + 100)
    ApiKey.objects.update(drains_at=timezone.now())
    router.reload_keys(pool)
    assert pool.choose("llama-3", now + 200) is None


def test_keys_are_drawn_in_proportion_to_their_weights(provider: Provider):
    provider.keys.create(label="light", secret=PLANTED, weight=1)
    provider.keys.create(label="heavy", secret=PLANTED, weight=9)
    drawn = chosen(provider, times=2_000)
    assert 0.85 < drawn["heavy"] / 2_000 < 0.95


def test_the_fingerprint_is_that_of_the_key(provider: Provider):
    key = provider.keys.create(secret=PLANTED)
    key.refresh_from_db()
    assert key.fingerprint == hashlib.sha256(PLANTED.encode()).hexdigest()[:12]
    key.secret = "sk-another-0123456789-wxyz"
    key.save(update_fields=["secret"])
    key.refresh_from_db()
    assert key.fingerprint != hashlib.sha256(PLANTED.encode()).hexdigest()[:12]
    assert provider.keys.create(label="short", secret="hunter2").fingerprint == ""


# The admin


def url(name: str, *args: object) -> str:
    return reverse(f"admin:llm_apikey_{name}", args=args)


def test_rotation_adds_a_key_and_drains_the_old_one_later(
    admin_client: Client, admin_user: User, provider: Provider
):
    old = provider.keys.create(secret=PLANTED, weight=3)
    form = {"label": "second", "secret": "sk-new-0123456789-wxyz", "overlap": 24}
    shown = admin_client.get(url("rotate", old.pk))
    assert PLANTED not in shown.text
    answer = admin_client.post(url("rotate", old.pk), form, follow=True)
    assert "sk-new-0123456789" not in answer.text
    old.refresh_from_db()
    new = provider.keys.get(label="second")
    assert (new.weight, new.added_by) == (3, admin_user)
    assert timedelta(hours=23) < old.drains_at - timezone.now() <= timedelta(hours=24)
    assert set(chosen(provider)) == {"default", "second"}
    day = timezone.now() + timedelta(hours=25)
    assert set(chosen(provider, now=day.timestamp())) == {"second"}


@pytest.mark.parametrize(
    ("change", "is_used"),
    [({}, True), ({"state": "disabled"}, False), ({"address": "new"}, False)],
)
def test_rotation_names_the_old_key_only_if_calls_use_it(
    admin_client: Client, provider: Provider, change: dict[str, str], is_used: bool
):
    state = change.get("state", ApiKey.State.ACTIVE)
    old = provider.keys.create(secret=PLANTED, state=state)
    if "address" in change:
        provider.base_url = "https://new.example/v1"
        provider.save()
    form = {"label": "second", "secret": "sk-new-0123456789-wxyz", "overlap": 24}
    answer = admin_client.post(url("rotate", old.pk), form, follow=True)
    [text] = map(str, answer.context["messages"])
    assert ("and also" in text) is is_used


def test_rotation_refuses_a_label_twice_and_shows_no_secret(
    admin_client: Client, provider: Provider
):
    old = provider.keys.create(secret=PLANTED)
    form = {"label": "default", "secret": "sk-new-0123456789-wxyz", "overlap": 1}
    answer = admin_client.post(url("rotate", old.pk), form)
    assert "Another key has this label" in answer.text
    assert "sk-new-0123456789" not in answer.text
    assert provider.keys.count() == 1


@pytest.mark.parametrize("entered", ["the old one", "another one", "with spaces"])
def test_rotation_refuses_a_key_that_the_provider_has(
    admin_client: Client, provider: Provider, entered: str
):
    old = provider.keys.create(secret=PLANTED)
    provider.keys.create(label="spare", secret="sk-spare-0123456789-wxyz")
    secret = "sk-spare-0123456789-wxyz" if entered == "another one" else PLANTED
    secret = f" {secret} " if entered == "with spaces" else secret
    form = {"label": "second", "secret": secret, "overlap": 24}
    answer = admin_client.post(url("rotate", old.pk), form)
    label = "spare" if entered == "another one" else "default"
    assert f"The provider has this key already: {label}" in answer.text
    assert secret.strip() not in answer.text
    old.refresh_from_db()
    assert (provider.keys.count(), old.drains_at) == (2, None)


def test_a_short_key_is_not_recognised(admin_client: Client, provider: Provider):
    old = provider.keys.create(secret="hunter2")
    form = {"label": "second", "secret": "hunter2", "overlap": 0}
    admin_client.post(url("rotate", old.pk), form)
    assert provider.keys.count() == 2


@pytest.mark.parametrize(
    ("overlap", "said"), [(0, "; default "), (24, ", and also default ")]
)
def test_after_a_rotation_the_page_says_which_keys_calls_use(
    admin_client: Client, provider: Provider, overlap: int, said: str
):
    old = provider.keys.create(secret=PLANTED)
    secret = "sk-new-0123456789-wxyz"
    form = {"label": "second", "secret": secret, "overlap": overlap}
    answer = admin_client.post(url("rotate", old.pk), form, follow=True)
    assert f"from now on{said}" in answer.text
    assert "m.." not in answer.text  # "p.m." ends the sentence


def test_rotation_does_not_revive_a_key_that_drains_sooner(
    admin_client: Client, provider: Provider
):
    ended = timezone.now() - HOUR
    old = provider.keys.create(secret=PLANTED, drains_at=ended)
    form = {"label": "second", "secret": "sk-new-0123456789-wxyz", "overlap": 24}
    answer = admin_client.post(url("rotate", old.pk), form, follow=True)
    assert "from now on; default " in answer.text
    old.refresh_from_db()
    assert old.drains_at == ended
    assert set(chosen(provider)) == {"second"}


def test_a_key_that_a_person_has_too_is_neither_refused_nor_told(
    admin_client: Client, admin_user: User, provider: Provider
):
    own = ApiKey.every.create(provider=provider, owner=admin_user, secret=PLANTED)
    old = provider.keys.create(label="old", secret="sk-old-0123456789-wxyz")
    form = {"label": "second", "secret": PLANTED, "overlap": 1}
    rotated = admin_client.post(url("rotate", old.pk), form, follow=True)
    form = {"provider": provider.pk, "secret": f"third = {PLANTED}"}
    provider.keys.filter(label="second").update(fingerprint="")
    imported = admin_client.post(url("import"), form, follow=True)
    assert {"second", "third"} <= {*provider.keys.values_list("label", flat=True)}
    for answer in (rotated, imported):
        assert f"{own.label}" not in answer.text


def test_rotation_takes_the_rights_to_add_and_to_change(
    client: Client, provider: Provider
):
    old = provider.keys.create(secret=PLANTED)
    clerk = User.objects.create_user("clerk", is_staff=True)
    for right in ("view_apikey", "change_apikey"):
        clerk.user_permissions.add(Permission.objects.get(codename=right))
    client.force_login(clerk)
    assert client.get(url("rotate", old.pk)).status_code == 403
    assert url("rotate", old.pk) not in client.get(url("change", old.pk)).text
    clerk.user_permissions.add(Permission.objects.get(codename="add_apikey"))
    assert client.get(url("rotate", old.pk)).status_code == 200


def test_the_action_drains_keys_at_once(admin_client: Client, provider: Provider):
    key = provider.keys.create(secret=PLANTED)
    form = {"action": "drain", "_selected_action": [key.pk]}
    answer = admin_client.post(url("changelist"), form, follow=True)
    assert "1 key gets no new calls" in answer.text
    assert "draining" in answer.text
    assert chosen_or_none(provider) is None


@pytest.mark.parametrize("column", ["expires_at", "drains_at"])
def test_the_list_shows_until_when_a_key_is_used(
    admin_client: Client, provider: Provider, column: str
):
    at = datetime(2199, 5, 6, 7, 8, tzinfo=UTC)
    provider.keys.create(secret=PLANTED, **{column: at})
    assert "active, until 05/06/2199" in admin_client.get(url("changelist")).text


def chosen_or_none(provider: Provider) -> str | None:
    try:
        return router.route_of(provider.models.get()).endpoint.api_key
    except InvalidKey:
        return None


def test_who_entered_a_key_has_added_it(
    admin_client: Client, admin_user: User, provider: Provider
):
    form = {
        "provider": provider.pk,
        "label": "mine",
        "secret": PLANTED,
        "state": "active",
        "weight": 1,
    }
    admin_client.post(url("add"), form)
    key = provider.keys.get()
    assert key.added_by == admin_user
    other = User.objects.create_superuser("other")
    admin_client.force_login(other)
    admin_client.post(url("change", key.pk), {**form, "secret": "", "weight": 2})
    key.refresh_from_db()
    assert (key.weight, key.added_by) == (2, admin_user)
