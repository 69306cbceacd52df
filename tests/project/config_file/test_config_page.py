from __future__ import annotations

import re

import pytest
from django.contrib.auth.models import Group, Permission
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from conversations.models import UsageLimit
from llm.models import ApiKey, LanguageModel, Provider
from project.accounts.models import IdentityProvider
from project.admin_pages import config_page
from project.admin_pages.config_page import EXPORT, IMPORT
from tests.conversations.scene import a_user, signed_in

pytestmark = pytest.mark.django_db

SECRET = "sk-very-secret-4711"


@pytest.fixture
def provider() -> Provider:
    provider = Provider.objects.create(
        name="vendor", kind="openai_compatible", base_url="https://vendor.example/v1"
    )
    ApiKey.objects.create(provider=provider, label="main", secret=SECRET)
    LanguageModel.objects.create(provider=provider, name="m-1")
    return provider


@pytest.fixture
def root() -> Client:
    return signed_in(a_user("root", is_staff=True, is_superuser=True))


def a_person_with(names: list[str]) -> Client:
    user = a_user("staff", is_staff=True)
    for name in names:
        app, codename = name.split(".")
        user.user_permissions.add(
            Permission.objects.get(content_type__app_label=app, codename=codename)
        )
    return signed_in(user)


def export(client: Client) -> str:
    answer = client.get(reverse("admin:config_export"))
    assert answer.status_code == 200
    return answer.content.decode()


def preview(client: Client, text: str) -> str:
    file = SimpleUploadedFile("parley.toml", text.encode())
    answer = client.post(reverse("admin:config"), {"file": file})
    assert answer.status_code == 200
    return answer.content.decode()


def apply(client: Client, text: str, page: str) -> str:
    found = re.search(r'name="before" value="(\w+)"', page)
    assert found
    data = {"text": text, "before": found[1], "_apply": "1"}
    return client.post(reverse("admin:config"), data, follow=True).content.decode()


def test_a_file_is_shown_as_a_diff_and_changes_rows_only_when_applied(
    root: Client, provider: Provider
):
    text = export(root).replace('name = "m-1"', 'name = "m-1", label = "Model One"')
    page = preview(root, text)
    assert "label = &quot;Model One&quot;" in page
    assert provider.models.get().label == ""
    assert "1 change was made." in apply(root, text, page)
    assert provider.models.get().label == "Model One"
    assert "already as in the file" in preview(root, text)


def test_a_file_of_an_editor_that_marks_its_encoding_is_read(
    root: Client, provider: Provider
):
    page = preview(root, "\ufeff" + export(root))
    assert "already as in the file" in page


def test_no_secret_is_exported(root: Client, provider: Provider):
    text = export(root)
    assert SECRET not in text
    assert 'secret = "env:VENDOR_MAIN_KEY"' in text


def test_an_import_reads_no_environment_variable(
    root: Client, provider: Provider, monkeypatch: pytest.MonkeyPatch
):
    """Else staff could send the server's own secrets to an address of theirs."""
    monkeypatch.setenv("OTHER_SECRET", "of the server")
    text = (
        '[[providers]]\nname = "mine"\nkind = "openai_compatible"\n'
        'base_url = "https://mine.example/v1"\n'
        '[[providers.keys]]\nlabel = "stolen"\nsecret = "env:OTHER_SECRET"\n'
    )
    page = preview(root, text)
    assert "enter the key by hand" in page
    apply(root, text, page)
    assert Provider.objects.filter(name="mine").exists()
    assert not ApiKey.objects.filter(label="stolen").exists()


def test_an_import_sends_no_stored_key_to_another_address(
    root: Client, provider: Provider
):
    text = export(root).replace("vendor.example", "elsewhere.example")
    apply(root, text, preview(root, text))
    provider.refresh_from_db()
    assert provider.base_url == "https://elsewhere.example/v1"
    assert provider.keys.get().why_not_sent


def test_a_key_in_the_file_is_refused_and_not_shown_again(
    root: Client, provider: Provider
):
    text = export(root).replace('"env:VENDOR_MAIN_KEY"', '"sk-in-the-file"')
    page = preview(root, text)
    assert "does not belong in a file" in page
    assert "sk-in-the-file" not in page


def test_a_change_between_look_and_application_is_not_overwritten(
    root: Client, provider: Provider
):
    text = export(root).replace('name = "m-1"', 'name = "m-1", label = "Model One"')
    page = preview(root, text)
    provider.models.update(label="Of another administrator")
    assert "changed after this page was shown" in apply(root, text, page)
    assert provider.models.get().label == "Of another administrator"


@pytest.mark.parametrize(
    "content",
    [
        *(b"[[", b"\xff\xfe", b"x = 1", b"providers = 3", b"", b"[" * 100_000),
        *(b"x = " + b"9" * 5000, b"[[usage_limits]]\nis_shared = []"),
    ],
)
def test_a_bad_file_gets_one_error(root: Client, content: bytes):
    file = SimpleUploadedFile("parley.toml", content)
    answer = root.post(reverse("admin:config"), {"file": file})
    assert answer.status_code == 200
    if content:
        assert b"errorlist" in answer.content


def a_file_of(models: int) -> str:
    tables = (f'[[providers.models]]\nname = "m-{n}"\n' for n in range(models))
    return (
        '[[providers]]\nname = "vendor"\nkind = "openai_compatible"\n'
        'base_url = "https://vendor.example/v1"\n' + "".join(tables)
    )


def test_a_file_of_too_many_tables_gets_one_error(
    root: Client, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(config_page, "MAX_TABLES", 20)
    assert "The file has 21 tables" not in preview(root, a_file_of(19))
    page = preview(root, a_file_of(20))
    assert "The file has 21 tables; at most 20 are imported here at once." in page
    assert "What the file would change" not in page


def test_rows_that_stay_as_they_are_cost_no_query_each(
    root: Client, provider: Provider
):
    counts = []
    for models in (3, 30):
        text = a_file_of(models)
        apply(root, text, preview(root, text))
        with CaptureQueriesContext(connection) as queries:
            assert "already as in the file" in preview(root, text)
        counts.append(len(queries))
    assert counts[0] == counts[1]


def test_staff_without_the_permissions_see_nothing(provider: Provider):
    client = a_person_with([name for name in EXPORT if "apikey" not in name])
    assert client.get(reverse("admin:config")).status_code == 403
    assert client.get(reverse("admin:config_export")).status_code == 403


def test_staff_who_may_only_look_cannot_import(provider: Provider):
    client = a_person_with(EXPORT)
    assert SECRET not in export(client)
    page = client.get(reverse("admin:config")).content.decode()
    assert 'type="file"' not in page
    file = SimpleUploadedFile("parley.toml", b"")
    answer = client.post(reverse("admin:config"), {"file": file})
    assert answer.status_code == 403


def test_staff_need_no_more_than_the_rights_on_each_kind_of_row(provider: Provider):
    client = a_person_with(IMPORT)
    text = export(client).replace('name = "m-1"', 'name = "m-1", label = "Model One"')
    apply(client, text, preview(client, text))
    assert provider.models.get().label == "Model One"


def test_groups_are_created_only_for_staff_who_may_add_them(provider: Provider):
    client = a_person_with(IMPORT)
    text = export(client).replace('name = "m-1"', 'name = "m-1", groups = ["ops"]')
    page = preview(client, text)
    assert "group &#x27;ops&#x27;: you may not add groups." in page
    assert not Group.objects.filter(name="ops").exists()
    Group.objects.create(name="ops")
    apply(client, text, preview(client, text))
    assert [each.name for each in provider.models.get().groups.all()] == ["ops"]


def test_limits_and_identity_providers_are_for_those_who_may_change_them(root):
    UsageLimit.objects.create(requests=7)
    IdentityProvider.objects.create(
        kind="google", slug="work", label="Work", client_id="x"
    )
    assert "requests = 7" in export(root)
    assert 'slug = "work"' in export(root)
    staff = a_person_with([*EXPORT, *IMPORT])
    text = export(staff)
    assert "usage_limits" not in text
    assert "identity_providers" not in text
    page = preview(staff, "[[usage_limits]]\nrequests = 9\n")
    assert "usage_limits: you may not change these." in page
    page = preview(staff, '[[identity_providers]]\nslug = "work"\nlabel = "Evil"\n')
    assert "identity_providers: you may not change these." in page
    assert UsageLimit.objects.get().requests == 7
    page = preview(root, "[[usage_limits]]\nrequests = 9\n")
    assert "usage_limits[everybody, month].requests: 7 → 9" in page
