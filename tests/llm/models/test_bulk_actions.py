"""Actions on several providers, keys and models in the admin's lists."""

from __future__ import annotations

import html
import json
import re
from datetime import timedelta

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Group, Permission, User
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from conversations.audit.models import AuditEvent, AuditText
from llm.models import ApiKey, LanguageModel, ModelPool, Provider

pytestmark = pytest.mark.django_db


@pytest.fixture
def provider() -> Provider:
    provider = Provider.objects.create(name="Ollama at home", kind="ollama")
    for name in ("gemma-4", "qwen-9", "phi"):
        provider.models.create(name=name)
    return provider


@pytest.fixture
def keys(provider) -> list[ApiKey]:
    return [provider.keys.create(label=f"key {n}", secret=f"s-{n}") for n in range(3)]


def list_page(name: str) -> str:
    return reverse(f"admin:llm_{name}_changelist")


def act(client: Client, action: str, rows, **posted: object):
    name = type(rows[0])._meta.model_name
    keys = [row.pk for row in rows]
    data = {"action": action, "_selected_action": keys, **posted}
    return client.post(list_page(name), data, follow=True)


def messages(answer) -> list[str]:
    found = re.findall(
        r'<li class="(?:success|warning|error)">(.*?)</li>', answer.content.decode()
    )
    return [html.unescape(each) for each in found]


def viewer(*codenames: str) -> Client:
    user = User.objects.create_user("looks-only", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=codenames))
    client = Client()
    client.force_login(user)
    return client


def offered(client: Client, name: str) -> set[str]:
    """The actions that the list offers."""
    page = client.get(list_page(name)).content.decode()
    select = re.search(r'<select name="action".*?</select>', page, re.DOTALL)
    return set(re.findall(r'<option value="(\w+)"', select[0])) if select else set()


# Keys


def test_keys_are_disabled_only_after_a_question(admin_client, keys):
    keys[0].state = ApiKey.State.DISABLED
    keys[0].save()
    asked = act(admin_client, "disable", keys)
    text = asked.content.decode()
    assert "Disable these keys?" in text
    assert "3 selected rows" in text
    assert ApiKey.objects.filter(state="disabled").count() == 1
    done = act(admin_client, "disable", keys, confirmed="yes")
    assert messages(done) == ["2 keys disabled; left out: 1 disabled already."]
    assert ApiKey.objects.filter(state="disabled").count() == 3
    assert LogEntry.objects.filter(change_message="Disabled.").count() == 2
    enabled = act(admin_client, "enable", keys)
    assert messages(enabled) == ["3 keys enabled."]


def test_a_disabled_key_is_not_called_disabled_by_parley(admin_client, keys):
    """`load_config` would enable a key again that Parley itself had disabled."""
    keys[0].state_reason, keys[0].state = "E_LLM_RATE_LIMIT", ApiKey.State.RESTING
    keys[0].rest_until = timezone.now() + timedelta(hours=1)
    keys[0].save()
    act(admin_client, "disable", keys[:1], confirmed="yes")
    keys[0].refresh_from_db()
    assert (keys[0].state, keys[0].rest_until) == ("disabled", None)
    assert not keys[0].is_disabled_automatically


def test_keys_that_are_drained_already_keep_their_time(admin_client, keys):
    before = keys[0].drains_at = timezone.now() - timedelta(days=3)
    keys[0].save()
    done = act(admin_client, "drain", keys)
    assert messages(done) == [
        "2 keys get no new calls; left out: 1 got no new calls before."
    ]
    keys[0].refresh_from_db()
    assert keys[0].drains_at == before


def test_the_weight_of_many_keys_is_set_at_once(admin_client, keys):
    page = act(admin_client, "set_weight", keys).content.decode()
    assert 'name="weight"' in page
    wrong = act(admin_client, "set_weight", keys, confirmed="yes", weight="-1")
    assert "greater than or equal to 0" in wrong.content.decode()
    assert set(ApiKey.objects.values_list("weight", flat=True)) == {1}
    keys[2].weight = 7
    keys[2].save()
    done = act(admin_client, "set_weight", keys, confirmed="yes", weight="7")
    assert messages(done) == [
        "2 keys have the weight 7 now; left out: 1 had this weight already."
    ]
    assert set(ApiKey.objects.values_list("weight", flat=True)) == {7}


def test_who_may_only_look_at_keys_is_offered_no_action(keys):
    client = viewer("view_apikey")
    assert offered(client, "apikey") == set()
    act(client, "disable", keys, confirmed="yes")
    assert not ApiKey.objects.filter(state="disabled").exists()


# Models


def test_aliases_are_set_exchanged_and_removed(admin_client, provider):
    one, two, three = provider.models.order_by("name")
    one.alias, two.alias, three.alias = "fast", "small", "old"
    for row in (one, two, three):
        row.save()
    page = act(admin_client, "set_aliases", [one, two, three]).content.decode()
    assert 'value="small"' in page
    fields = {f"alias_{one.pk}": "small", f"alias_{two.pk}": "fast"}
    fields[f"alias_{three.pk}"] = ""
    done = act(admin_client, "set_aliases", [one, two, three], confirmed="y", **fields)
    assert messages(done) == ["Aliases of 3 models changed."]
    found = provider.models.order_by("name").values_list("alias", flat=True)
    assert list(found) == ["small", "fast", None]


def test_the_audit_has_the_alias_before_and_after(admin_client, provider):
    one, two, three = provider.models.order_by("name")
    one.alias, two.alias = "fast", "small"
    for row in (one, two):
        row.save()
    fields = {f"alias_{one.pk}": "small", f"alias_{two.pk}": "fast"}
    fields[f"alias_{three.pk}"] = "new"
    act(admin_client, "set_aliases", [one, two, three], confirmed="y", **fields)
    fields = {f"alias_{one.pk}": "", f"alias_{two.pk}": "old"}
    act(admin_client, "set_aliases", [one, two], confirmed="y", **fields)
    keys = AuditEvent.objects.filter(action="config.change").values_list("pk")
    texts = AuditText.objects.filter(pk__in=keys).order_by("pk")
    details = [json.loads(text.details or "") for text in texts]
    found = [each.get("before", {}).get("alias") for each in details]
    assert found[-2:] == ["small", "fast"]
    [rows] = [each["rows"] for each in details if "rows" in each]
    assert [row["before"]["alias"] for row in rows.values()] == ["small"]


@pytest.mark.parametrize(
    ("alias", "problem"),
    [
        ("two words", "cannot contain spaces"),
        ("taken", "/{three} has this alias."),
        ("same", "Two of these models have this alias."),
        ("pool", "A model pool has this name."),
    ],
)
def test_an_alias_that_cannot_be_is_refused_at_its_field(
    admin_client, provider, alias: str, problem: str
):
    one, two, three = provider.models.order_by("name")
    three.alias = "taken"
    three.save()
    ModelPool.objects.create(name="pool")
    fields = {f"alias_{one.pk}": alias, f"alias_{two.pk}": "same"}
    page = act(admin_client, "set_aliases", [one, two], confirmed="y", **fields)
    assert 'class="errorlist"' in page.content.decode()
    assert problem.format(three=three.name) in page.content.decode()
    assert not provider.models.exclude(pk=three.pk).exclude(alias=None).exists()


def test_groups_are_added_to_and_taken_from_many_models(admin_client, provider):
    law, sales = (Group.objects.create(name=name) for name in ("Law", "Sales"))
    one, two, three = provider.models.order_by("name")
    one.groups.add(sales)
    two.groups.add(law, sales)
    three.groups.add(law)
    done = act(
        admin_client,
        "change_groups",
        [one, two, three],
        confirmed="yes",
        remove=[sales.pk],
    )
    assert messages(done) == [
        "Groups of 1 row changed; left out: 1 would be open to everybody,"
        " 1 had these groups already."
    ]
    assert [*two.groups.all()] == [law]
    assert [*one.groups.all()] == [sales]
    both = {"add": [law.pk], "remove": [law.pk]}
    page = act(admin_client, "change_groups", [one], confirmed="yes", **both)
    assert "not both: Law" in page.content.decode()
    none = act(admin_client, "change_groups", [one], confirmed="yes")
    assert "Choose at least one group." in none.content.decode()


def test_models_are_retired_together_and_brought_back(admin_client, provider):
    old, older, new = provider.models.order_by("name")
    fields = {"retires_at": "2031-02-03T04:05", "replacement": new.pk}
    rows = [old, older, new]
    done = act(admin_client, "set_retirement", rows, confirmed="y", **fields)
    [message] = messages(done)
    assert message.startswith("2 models have a date of retirement now; left out: 1 ")
    assert str(new) in message
    old.refresh_from_db()
    assert old.replacement == new
    assert old.retires_at.year == 2031
    back = act(admin_client, "set_retirement", rows, confirmed="y")
    assert messages(back) == [
        "2 models are not retired now; left out: 1 had this date already."
    ]
    assert not LanguageModel.objects.exclude(retires_at=None).exists()


def test_a_replacement_without_a_date_is_left_out_with_the_reason(
    admin_client, provider
):
    old, _older, new = provider.models.order_by("name")
    done = act(admin_client, "set_retirement", [old], confirmed="y", replacement=new.pk)
    assert messages(done) == [
        "0 models are not retired now; left out: 1 gemma-4 (Enter the date from"
        " which it answers)."
    ]
    old.refresh_from_db()
    assert old.replacement is None


def test_switching_models_says_which_were_so_already(admin_client, provider):
    rows = [*provider.models.all()]
    LanguageModel.objects.filter(pk=rows[0].pk).update(enabled=False)
    done = act(admin_client, "disable", rows)
    assert messages(done) == ["2 switched off; left out: 1 switched off already."]
    [done] = messages(act(admin_client, "enable", rows))
    assert done == "3 switched on."


def test_who_may_only_look_at_models_is_offered_no_action(provider):
    client = viewer("view_languagemodel")
    assert offered(client, "languagemodel") == set()
    row = provider.models.first()
    act(client, "set_retirement", [row], confirmed="y", retires_at="2031-02-03T04:05")
    act(client, "disable", [row])
    row.refresh_from_db()
    assert (row.retires_at, row.enabled) == (None, True)


def test_a_page_names_some_of_many_rows(admin_client, provider):
    LanguageModel.objects.bulk_create(
        LanguageModel(provider=provider, name=f"many-{n:03}") for n in range(70)
    )
    rows = [*LanguageModel.objects.filter(name__startswith="many")]
    page = act(admin_client, "set_retirement", rows).content.decode()
    assert "70 selected rows" in page
    assert "and 20 more" in page
