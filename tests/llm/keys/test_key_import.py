"""Import of several keys, from lines, a file, the environment and folders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.urls import reverse
from hypothesis import given
from hypothesis import strategies as st

from llm import router
from llm.admin.key_import import MAX_KEYS
from llm.keys.key_lines import read_key_lines
from llm.models import ApiKey, Provider

IMPORT = reverse("admin:llm_apikey_import")
KEYS = [f"sk-planted-{number}-0123456789abcdef" for number in range(4)]
AZURE = "c2stcGxhbnRlZC1henVyZS1rZXk="


@pytest.fixture
def provider(db: None) -> Provider:
    provider = Provider.objects.create(name="Groq", kind="groq")
    provider.models.create(name="llama-3")
    return provider


def send(client: Client, chosen: Provider, **fields: Any) -> str:
    answer = client.post(IMPORT, {"provider": chosen.pk} | fields, follow=True)
    assert all(key not in answer.text for key in KEYS)
    return answer.text


def stored(provider: Provider) -> dict[str, str]:
    return {key.label: key.secret.reveal() for key in provider.keys.all()}


def test_lines_are_read_as_in_a_file_of_variables():
    text = "\ufeff# ours\n\nexport OPENAI_API_KEY='a b'  # old\r\nteam red = k1\n"
    text += f"{AZURE}\nab=cd\nX_KEY = k2 # two\n" + '{"type": "x # y"}'
    assert [(each.number, each.label, each.key) for each in read_key_lines(text)] == [
        (3, "OPENAI_API_KEY", "a b"),
        (4, "team red", "k1"),
        (5, "", AZURE),
        (6, "", "ab=cd"),
        (7, "X_KEY", "k2"),
        (8, "", '{"type": "x # y"}'),
    ]


@given(st.text())
def test_any_text_is_read_and_loses_no_line(text: str):
    lines = [each.strip() for each in text.removeprefix("\ufeff").split("\n")]
    kept = [each for each in lines if each and not each.startswith("#")]
    assert len(list(read_key_lines(text))) == len(kept)


def test_lines_and_a_file_are_added_with_their_author(
    admin_client: Client, provider: Provider
):
    file = SimpleUploadedFile("keys.env", f"B_API_KEY={KEYS[2]}\n".encode())
    lines = f"A_API_KEY={KEYS[0]}\n{KEYS[1]}\nA_API_KEY={KEYS[3]}"
    assert "4 keys imported." in send(admin_client, provider, secret=lines, file=file)
    assert stored(provider) == {
        "A_API_KEY": KEYS[0],
        "imported": KEYS[1],
        "A_API_KEY 2": KEYS[3],
        "B_API_KEY": KEYS[2],
    }
    assert {key.added_by.get_username() for key in provider.keys.all()} == {"admin"}


def test_what_this_server_has_is_offered_by_name_and_read_at_each_use(
    admin_client: Client,
    provider: Provider,
    settings: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    settings.KEY_FOLDERS = [str(tmp_path), str(tmp_path / "missing")]
    (tmp_path / "groq").write_text(KEYS[1])
    monkeypatch.setenv("TEAM_API_KEY", KEYS[0])
    page = admin_client.get(IMPORT).text
    assert "env:TEAM_API_KEY" in page
    assert "env:SECRET_KEY" not in page
    assert all(key not in page for key in KEYS)
    found = ["env:TEAM_API_KEY", f"file:{tmp_path}/groq"]
    send(admin_client, provider, found=found)
    assert {key.label for key in provider.keys.all()} == {"TEAM_API_KEY", "groq"}
    provider.keys.filter(label="groq").delete()
    endpoint = router.route_of(provider.models.get()).endpoint
    assert endpoint.api_key == KEYS[0]
    assert "not one of the available" in send(
        admin_client, provider, found=["env:SECRET_KEY"]
    )


def test_a_key_that_is_there_is_left_out(admin_client: Client, provider: Provider):
    provider.keys.create(label="old", secret=KEYS[0])
    page = send(admin_client, provider, secret=f"{KEYS[0]}\n{KEYS[1]}\n{KEYS[1]}")
    assert "1 key imported." in page
    assert "2 keys were there already and are left out: old, imported." in page
    assert KEYS[0] not in page
    assert set(stored(provider).values()) == {KEYS[0], KEYS[1]}


def test_one_bad_line_adds_nothing_and_is_named_by_its_number(
    admin_client: Client, provider: Provider
):
    bad = f"{KEYS[0]}\n{KEYS[1]} {KEYS[2]}\nenv:SECRET_KEY"
    page = send(admin_client, provider, secret=bad)
    assert "Line 2:" in page
    assert "Line 3:" in page
    assert not ApiKey.objects.exists()


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "There is no key."),
        ({"secret": "# only\n\n"}, "There is no key."),
        ({"secret": "\n".join(f"k{n}" for n in range(MAX_KEYS + 1))}, "At most"),
        ({"secret": "a\0b"}, "Null characters"),
        ({"secret": "ключ"}, "Line 1:"),
        ({"file": b"\xff\xfe"}, "not a text in UTF-8"),
        ({"file": b"k\n" * 200_000}, "too large"),
        ({"provider": "x"}, "Select a valid choice"),
    ],
)
def test_a_bad_import_is_refused_in_words(
    admin_client: Client, provider: Provider, fields: Any, words: str
):
    if isinstance(content := fields.get("file"), bytes):
        fields = fields | {"file": SimpleUploadedFile("keys", content)}
    assert words in send(admin_client, provider, **fields)
    assert not ApiKey.objects.exists()


def test_only_who_may_add_keys_may_import(client: Client, provider: Provider):
    user = User.objects.create_user("rita", is_staff=True)
    names = ["view_apikey", "change_apikey"]
    user.user_permissions.set(Permission.objects.filter(codename__in=names))
    client.force_login(user)
    assert client.get(IMPORT).status_code == 403
    fields = {"provider": provider.pk, "secret": KEYS[0]}
    assert client.post(IMPORT, fields).status_code == 403
    listed = client.get(reverse("admin:llm_apikey_changelist")).text
    assert IMPORT not in listed
    assert not ApiKey.objects.exists()
