from __future__ import annotations

import io
import json
import pickle

import pytest
from cryptography.fernet import Fernet
from django.core import checks
from django.core.exceptions import FieldError, ImproperlyConfigured
from django.core.management import CommandError, call_command
from django.db import connection, models, transaction
from hypothesis import given
from hypothesis import strategies as st

from llm.checks import check_ring, check_secrets
from llm.db.encrypted_field import (
    MASK,
    EncryptedTextField,
    OriginChanged,
    Secret,
    SecretUnavailable,
    decrypt,
    encrypt,
    hint_of,
    list_encrypted_fields,
    query_stored_texts,
    reencrypt,
    rotate,
    scrub,
)
from llm.models import ApiKey, LanguageModel, Provider
from tools.models import HttpTool, Tool

PLANTED = "sk-planted-0123456789-wxyz"
COLUMN = ApiKey._meta.get_field("secret")


@pytest.fixture
def provider(db) -> Provider:
    return Provider.objects.create(name="Groq", kind="groq")


def stored(key: ApiKey) -> str:
    return query_stored_texts(COLUMN).get(pk=key.pk).stored_text


# The value


@given(st.text(min_size=1))
def test_an_encrypted_value_is_decrypted_again(text: str):
    assert Secret.of(text).reveal() == text
    assert decrypt(encrypt(text)) == text


@pytest.mark.parametrize(
    "show",
    [
        str,
        repr,
        "{}".format,
        "{!r}".format,
        lambda secret: f"{secret} {secret!r:>40}",
        lambda secret: repr([secret]),
        lambda secret: repr({"key": secret}),
        lambda secret: pickle.dumps(secret).decode("latin-1"),
        "%s".__mod__,
    ],
)
def test_no_way_of_writing_a_secret_shows_it(show):
    assert PLANTED not in show(Secret.of(PLANTED))


def test_a_secret_does_not_join_or_serialize():
    with pytest.raises(TypeError):
        "Bearer " + Secret.of(PLANTED)
    with pytest.raises(TypeError):
        json.dumps(Secret.of(PLANTED))


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("sk-abcdefghijklmnopqrstab12", "sk-…ab12"),
        ("0123456789abcdef", "012…cdef"),
        ("0123456789abcde", "set"),
        ("x", "set"),
    ],
)
def test_a_hint_shows_little_of_a_long_secret_and_nothing_of_a_short_one(text, hint):
    assert hint_of(text) == hint


@pytest.mark.parametrize("stored_text", ["", "plain", "f1:", "f1:gAAAA", "f9:x"])
def test_a_foreign_ciphertext_is_unavailable_and_not_shown(stored_text):
    with pytest.raises(SecretUnavailable) as caught:
        decrypt(stored_text)
    assert str(caught.value) == ""


def test_an_empty_ring_is_a_configuration_error(settings):
    settings.ENCRYPTION_KEYS = []
    with pytest.raises(ImproperlyConfigured, match="ENCRYPTION_KEYS is empty"):
        encrypt("x")


@pytest.mark.parametrize(
    ("text", "secrets", "left"),
    [
        ("The key abc is wrong.", ["abc"], f"The key {MASK} is wrong."),
        ("ab abc", ["ab", "abc"], f"{MASK} {MASK}"),
        ("Incorrect key sk-proj-0123456789abcdefXYZ.", [], f"Incorrect key {MASK}"),
        ("Authorization: Bearer abcdefghijklmnop0", [], f"Authorization: {MASK}"),
        ("nothing to hide", ["", "x"], "nothing to hide"),
        ("six boxes of x", ["x"], "six boxes of x"),
        ("x", ["x"], MASK),
        ("nonetheless, none", ["none"], f"nonetheless, {MASK}"),
        ('{"key":"none"}&none=1', ["none"], f'{{"key":"{MASK}"}}&{MASK}=1'),
        ("12345678 x12345678y", ["12345678"], f"{MASK} x{MASK}y"),
        (
            r'{"error":"Bad key:\nhunter2"}',
            ["hunter2"],
            rf'{{"error":"Bad key:\n{MASK}"}}',
        ),
        ("?q=key%3Dhunter2", ["hunter2"], f"?q=key%3D{MASK}"),
        (r"key\u003dhunter2", ["hunter2"], rf"key\u003d{MASK}"),
        ("no hunter22", ["hunter2"], "no hunter22"),
        ("?key=a%2Bb%2Fc%3D", ["a+b/c="], f"?key={MASK}"),
        ("?key=a%2bb%2fc%3d", ["a+b/c="], f"?key={MASK}"),
        (r'"long\"secret"', ['long"secret'], f'"{MASK}"'),
        ("Unknown token 'abcdef'", ["Bearer abcdef"], f"Unknown token '{MASK}'"),
        ("Unknown token 'abcdef'", ["bearer  abcdef"], f"Unknown token '{MASK}'"),
        ("Unknown key abcdef-12", ["Token abcdef-12"], f"Unknown key {MASK}"),
        ("Unknown key Abcdefgh-Ij", ["api-key Abcdefgh-Ij"], f"Unknown key {MASK}"),
        ("Unknown user dTpwYXNz", ["BASIC dTpwYXNz"], f"Unknown user {MASK}"),
        ("The app is unknown", ["My app"], "The app is unknown"),  # no scheme
        ('{"role": "assistant"}', ["Parley assistant"], '{"role": "assistant"}'),
        ('{"role": "assistant"}', ["Basic assistant"], '{"role": "assistant"}'),
        ("claude-haiku-4-5", ["Parley claude-haiku-4-5"], "claude-haiku-4-5"),
        ("By Parley assistant", ["Parley assistant"], f"By {MASK}"),
    ],
)
def test_scrubbing_takes_out_the_secrets_and_what_looks_like_one(text, secrets, left):
    assert scrub(text, secrets) == left


# The column


def test_the_database_contains_no_plain_text(provider: Provider):
    key = provider.keys.create(secret=PLANTED)
    assert stored(key).startswith("f2:")
    assert PLANTED not in stored(key)
    assert ApiKey.objects.get().secret.reveal() == PLANTED


def test_an_instance_in_memory_contains_no_plain_text(provider: Provider):
    key = ApiKey(provider=provider, secret=PLANTED)
    assert PLANTED not in repr(vars(key))
    assert PLANTED not in repr(key) + str(key)
    assert key.hint == "sk-…wxyz"


def test_saving_an_unchanged_row_keeps_the_stored_ciphertext(provider: Provider):
    key = provider.keys.create(secret=PLANTED)
    before = stored(key)
    loaded = ApiKey.objects.get()
    loaded.full_clean()
    loaded.save()
    assert stored(key) == before
    assert loaded.hint == "sk-…wxyz"


def test_the_hint_follows_the_secret_however_the_row_is_saved(provider: Provider):
    key = provider.keys.create(secret=PLANTED)
    key.secret = "another-long-secret-0000"
    key.save(update_fields=["secret"])
    assert ApiKey.objects.get().hint == "ano…0000"
    ApiKey.objects.bulk_create([ApiKey(provider=provider, label="b", secret=PLANTED)])
    assert ApiKey.objects.get(label="b").hint == "sk-…wxyz"


def test_an_update_of_many_rows_is_refused_as_each_secret_belongs_to_its_row(
    provider: Provider,
):
    provider.keys.create(secret="old")
    for value in (PLANTED, Secret.of(PLANTED)):
        with pytest.raises(FieldError, match="save the row"), transaction.atomic():
            ApiKey.objects.update(secret=value)
    assert ApiKey.objects.get().secret.reveal() == "old"


def put(key: ApiKey, text: str) -> None:
    """Write the column past all code of ours."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE llm_apikey SET secret = %s WHERE id = %s", [text, key.pk]
        )


def test_a_ciphertext_moved_to_another_row_or_column_does_not_decrypt(
    provider: Provider,
):
    mine = provider.keys.create(label="mine", secret=PLANTED)
    other = provider.keys.create(label="other", secret="x")
    put(other, stored(mine))
    with pytest.raises(SecretUnavailable):
        ApiKey.objects.get(pk=other.pk).secret.reveal()
    tool = HttpTool(tool=Tool(), url="https://api.groq.com/x", secret_id=mine.secret_id)
    tool.__dict__["secret_headers"] = Secret(stored(mine))
    with pytest.raises(SecretUnavailable):
        tool.secret_headers.reveal()
    assert ApiKey.objects.get(pk=mine.pk).is_current_key(PLANTED)


@pytest.mark.parametrize(
    ("before", "after", "stays"),
    [
        ("https://a.example/v1", "https://a.example/v2", True),
        ("https://a.example/v1", "https://A.EXAMPLE:443/v1", True),
        ("https://a.example/v1", "https://a.example:8443/v1", False),
        ("https://a.example/v1", "http://a.example/v1", False),
        ("https://a.example/v1", "https://b.example/v1", False),
        ("https://a.example/v1", "https://a.example.b.example/v1", False),
        ("https://a.example/v1", "", False),
        ("", "https://api.groq.com/openai/v1", True),
        ("http://[::1]:8/v1", "http://[::1]:8/v2", True),
        ("http://[::1]:8/v1", "http://[::2]:8/v1", False),
    ],
)
def test_a_key_is_revealed_for_the_origin_it_was_entered_for_and_no_other(
    provider: Provider, before: str, after: str, stays: bool
):
    provider.base_url = before
    provider.save()
    provider.keys.create(secret=PLANTED)
    provider.base_url = after
    provider.save()
    key = ApiKey.objects.get()
    assert key.is_current_key(PLANTED) == stays
    key.label = "saved as it is"
    key.save()
    assert ApiKey.objects.get().is_current_key(PLANTED) == stays
    if not stays:
        with pytest.raises(OriginChanged):
            key.secret.reveal()
        provider.base_url = before
        provider.save()
        assert ApiKey.objects.get().is_current_key(PLANTED)


def test_a_key_is_bound_to_where_its_tokens_are_issued_too(provider: Provider):
    azure = Provider.objects.create(
        name="Azure",
        kind="azure_openai",
        base_url="https://a.openai.azure.com/openai/v1",
        options={"tenant": "t", "client_id": "c"},
    )
    azure.keys.create(secret=PLANTED)
    azure.options = {**azure.options, "authority": "https://thief.example"}
    azure.save()
    assert not azure.keys.get().is_current_key(PLANTED)


def test_a_secret_of_the_older_form_does_not_follow_a_changed_address(
    provider: Provider,
):
    key = provider.keys.create(secret="x")
    put(key, encrypt(PLANTED))
    assert ApiKey.objects.get().is_current_key(PLANTED)
    provider.base_url = "https://thief.example/v1"
    provider.save()
    assert not ApiKey.objects.get().is_current_key(PLANTED)
    provider.base_url = ""
    provider.save()
    assert ApiKey.objects.get().is_current_key(PLANTED)
    assert stored(key).startswith("f2:")


def test_headers_of_the_older_form_do_not_follow_a_changed_address(db):
    row = HttpTool(tool=Tool.objects.create(name="t", kind="http"), url="https://a/x")
    row.save()
    text = encrypt('{"X-Key": "k"}')
    with connection.cursor() as cursor:
        cursor.execute("UPDATE tools_httptool SET secret_headers = %s", [text])
    row = HttpTool.objects.get()
    assert row.get_secret_headers() == {"X-Key": "k"}
    row.url = "https://a/y"
    row.save()
    assert HttpTool.objects.get().get_secret_headers() == {"X-Key": "k"}
    row = HttpTool.objects.get()
    row.url = "https://b/x"
    row.save(update_fields=["url"])
    assert HttpTool.objects.get().get_secret_headers() == {}


def test_rows_of_a_lost_ring_can_be_listed_and_mended(provider: Provider, settings):
    provider.keys.create(secret=PLANTED)
    settings.ENCRYPTION_KEYS = [Fernet.generate_key().decode()]
    key = ApiKey.objects.get()
    with pytest.raises(SecretUnavailable):
        key.secret.reveal()
    assert not key.is_current_key(PLANTED)
    key.label = "other"
    key.full_clean()
    key.save()
    key.secret = "new-secret"
    key.save()
    assert ApiKey.objects.get().is_current_key("new-secret")


def test_an_encrypted_column_cannot_be_searched(db):
    for lookup in ("secret", "secret__icontains", "secret__startswith", "secret__in"):
        with pytest.raises(FieldError):
            ApiKey.objects.filter(**{lookup: "x"})
    assert not ApiKey.objects.filter(secret__isnull=True).exists()


def test_dumpdata_omits_secrets_and_loaddata_reports_it(
    provider: Provider, tmp_path, django_assert_num_queries
):
    provider.keys.create(secret=PLANTED)
    for form in ("json", "xml", "jsonl"):
        file = tmp_path / f"dump.{form}"
        call_command("dumpdata", "llm", format=form, output=str(file), verbosity=0)
        assert PLANTED not in file.read_text()
        assert "f1:" not in file.read_text()
        call_command("loaddata", str(file), verbosity=0)
        assert ApiKey.objects.get().secret == ""


@pytest.mark.parametrize("text", ["two words", "tab\t", "ключ", "line\nline"])
def test_a_key_that_no_header_could_carry_is_refused(provider: Provider, text: str):
    key = ApiKey(provider=provider, secret=text)
    with pytest.raises(Exception, match="cannot contain spaces") as caught:
        key.full_clean()
    assert text not in str(caught.value)


@pytest.mark.parametrize("options", [{"unique": True}, {"db_index": True}])
def test_an_index_on_an_encrypted_column_is_an_error(options):
    column = EncryptedTextField(**options)
    column.set_attributes_from_name("secret")
    column.model = ApiKey
    assert "llm.E001" in [found.id for found in column.check()]


def test_a_model_whose_rows_bind_nothing_is_an_error():
    column = EncryptedTextField()
    column.set_attributes_from_name("secret")
    column.model = LanguageModel
    assert "llm.E005" in [found.id for found in column.check()]


def test_a_hint_that_a_new_row_would_empty_again_is_an_error(monkeypatch):
    assert COLUMN.check() == []
    monkeypatch.setattr(COLUMN, "hint_field", "last_error")
    assert [found.id for found in COLUMN.check()] == ["llm.E004"]


def test_the_migration_knows_the_column_whole():
    _, path, args, kwargs = COLUMN.deconstruct()
    again = EncryptedTextField(*args, **kwargs)
    assert path == "llm.db.encrypted_field.EncryptedTextField"
    assert again.hint_field == "hint"
    assert EncryptedTextField().deconstruct()[3] == {}
    assert isinstance(again, models.TextField)


# Rotation


@pytest.fixture
def ring(settings) -> tuple[str, str]:
    """The old key and the new one; the ring is the old one still."""
    old, new = (Fernet.generate_key().decode() for _ in range(2))
    settings.ENCRYPTION_KEYS = [old]
    return old, new


def test_after_a_rotation_the_old_key_can_go(provider: Provider, settings, ring):
    old, new = ring
    for number in range(5):
        provider.keys.create(label=str(number), secret=f"{PLANTED}{number}")
    settings.ENCRYPTION_KEYS = [new, old]
    done = rotate(COLUMN, batch_size=2)
    assert (done.rotated, done.already_newest, done.unreadable) == (5, 0, [])
    settings.ENCRYPTION_KEYS = [new]
    revealed = [key.secret.reveal() for key in ApiKey.objects.order_by("label")]
    assert revealed == [f"{PLANTED}{number}" for number in range(5)]


def test_a_rotation_goes_on_where_it_was_broken_off(provider, settings, ring):
    old, new = ring
    first = provider.keys.create(label="a", secret="aaa")
    provider.keys.create(label="b", secret="bbb")
    settings.ENCRYPTION_KEYS = [new, old]
    first.refresh_from_db()
    ApiKey.objects.filter(pk=first.pk).update(secret=reencrypt(first.secret))
    done = rotate(COLUMN)
    assert (done.rotated, done.already_newest) == (1, 1)
    again = rotate(COLUMN)
    assert (again.rotated, again.already_newest) == (0, 2)


def test_a_rotation_never_writes_over_a_new_secret(
    provider, settings, ring, monkeypatch
):
    old, new = ring
    key = provider.keys.create(secret="before")
    settings.ENCRYPTION_KEYS = [new, old]

    def meanwhile(secret: Secret) -> Secret:
        key.secret = "entered meanwhile"
        key.save()
        return reencrypt(secret)

    monkeypatch.setattr("llm.db.encrypted_field.reencrypt", meanwhile)
    done = rotate(COLUMN)
    assert (done.rotated, done.changed_meanwhile) == (0, 1)
    assert ApiKey.objects.get().is_current_key("entered meanwhile")


def test_a_rotation_rewrites_the_older_form(provider: Provider, settings, ring):
    old, new = ring
    key = provider.keys.create(secret="x")
    put(key, encrypt(PLANTED))
    settings.ENCRYPTION_KEYS = [new, old]
    assert rotate(COLUMN).rotated == 1
    assert stored(key).startswith("f2:")
    settings.ENCRYPTION_KEYS = [new]
    assert ApiKey.objects.get().is_current_key(PLANTED)
    assert rotate(COLUMN).already_newest == 1


def test_a_rotation_preserves_the_origin_of_a_key(provider: Provider, settings, ring):
    old, new = ring
    provider.keys.create(secret=PLANTED)
    provider.base_url = "https://thief.example/v1"
    provider.save()
    settings.ENCRYPTION_KEYS = [new, old]
    assert rotate(COLUMN).rotated == 1
    settings.ENCRYPTION_KEYS = [new]
    assert not ApiKey.objects.get().is_current_key(PLANTED)
    provider.base_url = ""
    provider.save()
    assert ApiKey.objects.get().is_current_key(PLANTED)


def test_a_rotation_takes_as_many_queries_as_rows_and_batches(
    provider, settings, ring, django_assert_num_queries
):
    old, new = ring
    for number in range(4):
        provider.keys.create(label=str(number), secret="x")
    settings.ENCRYPTION_KEYS = [new, old]
    with django_assert_num_queries(4 + 3):
        rotate(COLUMN, batch_size=2)


def test_rotate_keys_prints_what_it_did(provider: Provider, settings, ring):
    old, new = ring
    provider.keys.create(secret=PLANTED)
    provider.keys.create(label="none", secret="")
    settings.ENCRYPTION_KEYS = [new, old]
    out = io.StringIO()
    call_command("rotate_keys", stdout=out)
    lines = out.getvalue().splitlines()
    line = "llm.ApiKey.secret: 1 re-encrypted, 0 already with the newest key"
    assert lines.count(line) == 1
    assert all(": 0 re-encrypted" in each for each in lines if each != line)


def test_rotate_keys_names_what_it_cannot_read_and_does_the_rest(
    provider: Provider, settings, ring
):
    new = ring[1]
    lost = provider.keys.create(label="lost", secret="x")
    settings.ENCRYPTION_KEYS = [new]
    provider.keys.create(label="good", secret="y")
    out = io.StringIO()
    with pytest.raises(CommandError, match="Not all secrets"):
        call_command("rotate_keys", stdout=out)
    assert f"1 unreadable (rows {lost.pk})" in out.getvalue()
    assert "1 already with the newest key" in out.getvalue()


def test_rotate_keys_wants_a_batch_of_at_least_one(db):
    with pytest.raises(CommandError, match="at least 1"):
        call_command("rotate_keys", batch_size=0)


def test_rotate_keys_makes_a_key_for_the_ring(provider: Provider, settings):
    provider.keys.create(secret=PLANTED)
    out = io.StringIO()
    call_command("rotate_keys", "--print-new-key", stdout=out)
    settings.ENCRYPTION_KEYS = [out.getvalue().strip(), *settings.ENCRYPTION_KEYS]
    assert rotate(COLUMN).rotated == 1


def test_every_encrypted_column_is_found():
    assert COLUMN in list_encrypted_fields()
    assert all(
        isinstance(column, EncryptedTextField) for column in list_encrypted_fields()
    )


# Checks


@pytest.mark.parametrize(
    ("keys", "ids"),
    [
        ([], ["llm.E002"]),
        (["short"], ["llm.E003"]),
        ([Fernet.generate_key().decode()], []),
    ],
)
def test_the_check_knows_a_ring_that_cannot_work(settings, keys, ids):
    settings.ENCRYPTION_KEYS = keys
    assert [found.id for found in check_ring(None)] == ids


def test_the_database_check_counts_what_cannot_be_decrypted(provider, settings):
    provider.keys.create(secret=PLANTED)
    assert check_secrets(None, databases=["default"]) == []
    settings.ENCRYPTION_KEYS = [Fernet.generate_key().decode()]
    [found] = check_secrets(None, databases=["default"])
    assert found.id == "llm.W001"
    assert found.msg == "llm.ApiKey.secret: 1 cannot be decrypted."
    assert check_secrets(None) == []


def test_the_database_check_counts_what_is_bound_to_no_address_yet(provider):
    key = provider.keys.create(secret=PLANTED)
    put(key, encrypt(PLANTED))
    [found] = check_secrets(None, databases=["default"])
    assert found.id == "llm.W002"
    assert found.msg == "llm.ApiKey.secret: 1 not bound to an address yet."
    call_command("rotate_keys", stdout=io.StringIO())
    assert check_secrets(None, databases=["default"]) == []
    provider.base_url = "https://elsewhere.example/v1"
    provider.save()
    assert check_secrets(None, databases=["default"]) == []  # it is not lost


def test_the_database_check_waits_for_the_migration(db, monkeypatch):
    monkeypatch.setattr(COLUMN, "column", "not_there_yet")
    assert check_secrets(None, databases=["default"]) == []
    monkeypatch.setattr(ApiKey._meta, "db_table", "not_there_yet")
    assert check_secrets(None, databases=["default"]) == []


def test_the_checks_are_registered():
    registered = checks.registry.registry.get_checks(include_deployment_checks=True)
    assert {check_ring, check_secrets} <= set(registered)
