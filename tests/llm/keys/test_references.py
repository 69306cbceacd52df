"""Keys that are read from the environment or from a file at each use."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.core.exceptions import ValidationError

from llm import router
from llm.errors import InvalidKey
from llm.keys.references import ReferenceRefused, read_reference
from llm.models import ApiKey, Provider

pytestmark = pytest.mark.django_db

PLANTED = "sk-planted-0123456789-wxyz"


@pytest.fixture
def provider() -> Provider:
    provider = Provider.objects.create(name="Groq", kind="groq")
    provider.models.create(name="llama-3")
    return provider


def sent_key(provider: Provider) -> str:
    return router.route_of(provider.models.get()).endpoint.api_key


def test_a_variable_is_read_at_each_use(provider, monkeypatch):
    monkeypatch.setenv("TEAM_API_KEY", PLANTED)
    key = ApiKey(provider=provider, secret="env:TEAM_API_KEY")
    key.full_clean()
    key.save()
    assert sent_key(provider) == PLANTED
    monkeypatch.setenv("TEAM_API_KEY", "sk-rotated")
    assert sent_key(provider) == "sk-rotated"
    assert key.reference == "env:TEAM_API_KEY"
    assert key.fingerprint == ""


def test_a_file_of_a_permitted_folder_is_read(provider, settings, tmp_path: Path):
    settings.KEY_FOLDERS = [str(tmp_path)]
    (tmp_path / "groq").write_text(f"{PLANTED}\n")
    provider.keys.create(secret=f"file:{tmp_path}/groq")
    assert sent_key(provider) == PLANTED


@pytest.mark.parametrize("name", ["SECRET_KEY", "DATABASE_URL", "ENCRYPTION_KEYS"])
def test_other_variables_are_not_permitted(provider, monkeypatch, name: str):
    monkeypatch.setenv(name, PLANTED)
    key = ApiKey(provider=provider, secret=f"env:{name}")
    with pytest.raises(ValidationError, match="may not be used") as caught:
        key.full_clean()
    assert PLANTED not in str(caught.value)
    key.save()  # as a row of a database that somebody else wrote
    with pytest.raises(InvalidKey):
        sent_key(provider)


def test_files_outside_of_the_folders_are_not_read(provider, settings, tmp_path: Path):
    permitted, other = tmp_path / "permitted", tmp_path / "other"
    permitted.mkdir()
    other.write_text(PLANTED)
    (permitted / "link").symlink_to(other)
    settings.KEY_FOLDERS = [str(permitted)]
    for name in [other, f"{permitted}/../other", permitted / "link", "/etc/passwd"]:
        with pytest.raises(ReferenceRefused, match="may not be read"):
            read_reference(f"file:{name}")
    with pytest.raises(ReferenceRefused, match="cannot be read"):
        read_reference(f"file:{permitted}/missing")
    with pytest.raises(ReferenceRefused, match="cannot be read"):
        read_reference(f"file:{permitted}/nul\0")
    (permitted / "large").write_text("k" * 100_000)
    with pytest.raises(ReferenceRefused, match="too large"):
        read_reference(f"file:{permitted}/large")


def test_a_key_that_vanished_is_an_error_without_its_place(provider, monkeypatch):
    provider.keys.create(secret="env:GONE_API_KEY", label="team")
    with pytest.raises(InvalidKey, match="cannot be read where it is stored") as caught:
        sent_key(provider)
    assert "GONE_API_KEY" not in str(caught.value)  # people see it


def test_a_reference_is_bound_to_its_address_like_a_key(provider, monkeypatch):
    monkeypatch.setenv("TEAM_API_KEY", PLANTED)
    provider.keys.create(secret="env:TEAM_API_KEY")
    provider.base_url = "https://elsewhere.example/v1"
    provider.save()
    with pytest.raises(InvalidKey, match="different address"):
        sent_key(provider)


def test_people_cannot_name_the_servers_variables(
    provider, monkeypatch, django_user_model
):
    monkeypatch.setenv("TEAM_API_KEY", PLANTED)
    person = django_user_model.objects.create_user("nora")
    key = ApiKey(provider=provider, owner=person, label="x", secret="env:TEAM_API_KEY")
    with pytest.raises(ValidationError, match="Enter the key itself"):
        key.full_clean()
    key.save()
    provider.accepts_own_keys = True
    provider.save()
    route = router.route_of(provider.models.get(), user=person)
    assert route.endpoint.api_key == "env:TEAM_API_KEY"


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("env:TEAM_KEY", "env:TEAM_KEY"),
        ("env:ANTHROPIC_API_KEY", "env:…THROPIC_API_KEY"),
        ("file:/run/secrets/anthropic", "file:…rets/anthropic"),
    ],
)
def test_a_reference_is_no_secret_in_lists(provider, text: str, hint: str):
    key = provider.keys.create(label="team", secret=text)
    key.refresh_from_db()
    assert str(key) == f"team {hint}"
    key.secret = "sk-0123456789-abcdefgh"
    key.save()
    key.refresh_from_db()
    assert key.hint == "sk-…efgh"


@pytest.mark.parametrize("text", ["env:sk-ant-0123456789-wxyz", "file:sk 0123456789ab"])
def test_a_mistyped_secret_stays_masked(provider, admin_client, text: str):
    key = provider.keys.create(label="team", secret=text)
    assert key.hint == f"{text[:3]}…{text[-4:]}"
    assert key.shown_hint == key.hint
    assert text not in admin_client.get(f"/admin/llm/apikey/{key.pk}/change/").text
    with pytest.raises(ReferenceRefused) as refused:
        read_reference(text)
    if text.startswith("env:"):
        assert text.removeprefix("env:") not in str(refused.value)


def test_a_reference_of_an_older_version_is_shown_as_well(provider, admin_client):
    key = provider.keys.create(label="team", secret="env:ANTHROPIC_API_KEY")
    ApiKey.objects.update(hint="env…_KEY")
    for page in ("", f"{key.pk}/change/"):
        assert (
            "env:…THROPIC_API_KEY" in admin_client.get(f"/admin/llm/apikey/{page}").text
        )


def test_the_own_key_of_a_person_names_nothing_here(provider, django_user_model):
    owner = django_user_model.objects.create(username="ada")
    key = ApiKey.every.create(provider=provider, secret="env:not-a-name-1", owner=owner)
    assert key.hint == "env…me-1"
