"""Model pools in the configuration file: their hosts are exactly those of the file."""

from __future__ import annotations

import tomllib

import pytest
import tomli_w
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.urls import reverse

from llm.models import LanguageModel, ModelPool, PoolMember, Provider
from project.config_file import ConfigError, dump, load

pytestmark = pytest.mark.django_db

FILE = """
[[providers]]
name = "Rack 3"
kind = "openai_compatible"
base_url = "https://rack.test/v1"

  [[providers.models]]
  name = "qwen"

[[providers]]
name = "Rack 4"
kind = "openai_compatible"
base_url = "https://rack4.test/v1"

  [[providers.models]]
  name = "qwen"

[[model_pools]]
name = "quick"
strategy = "least_busy"
cooldown = 60

  [[model_pools.hosts]]
  model = "Rack 3/qwen"
  weight = 3

  [[model_pools.hosts]]
  model = "Rack 4/qwen"

[[model_pools]]
name = "later"
enabled = false
"""


def made(text: str = FILE) -> list[str]:
    return list(load(tomllib.loads(text), {}).changes)


def test_a_pool_comes_from_the_file_and_goes_back_into_it():
    changes = made()
    hosts = "model_pools[quick].hosts: now Rack 3/qwen (3), Rack 4/qwen (1)"
    assert {"model_pools[quick]: created", hosts} <= set(changes)
    pool = ModelPool.objects.get(name="quick")
    assert (pool.strategy, pool.cooldown, pool.enabled) == ("least_busy", 60, True)
    weights = {each.model.full_name: each.weight for each in pool.members.all()}
    assert weights == {"Rack 3/qwen": 3, "Rack 4/qwen": 1}
    assert made() == []
    dumped = tomli_w.dumps(dump())
    Provider.objects.all().delete()
    ModelPool.objects.all().delete()
    load(tomllib.loads(dumped), {})
    assert tomli_w.dumps(dump()) == dumped


def test_a_changed_host_is_a_difference_and_a_dry_run_changes_nothing():
    made()
    other = FILE.replace("weight = 3", "weight = 0")
    line = "model_pools[quick].hosts: now Rack 3/qwen (0), Rack 4/qwen (1)"
    report = load(tomllib.loads(other), {}, dry_run=True)
    assert list(report.changes) == [line]
    assert PoolMember.objects.get(model__provider__name="Rack 3").weight == 3
    assert made(other) == [line]
    assert PoolMember.objects.get(model__provider__name="Rack 3").weight == 0


def test_hosts_that_the_file_does_not_name_leave_the_pool():
    made()
    before, _, rest = FILE.partition('  [[model_pools.hosts]]\n  model = "Rack 4')
    made(before + rest.partition("\n")[2])
    [host] = PoolMember.objects.all()
    assert host.model.full_name == "Rack 3/qwen"


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('"Rack 4/qwen"', '"Rack 4/gone"', "hosts: there is no model 'Rack 4/gone'."),
        ('"Rack 4/qwen"', '"Rack 3/qwen"', "hosts[2].model: this name occurs twice."),
        ("weight = 3", "weight = 9999", "hosts[1].weight: Ensure this value is less"),
        ("weight = 3", 'weight = "3"', "hosts[1].weight: write a whole number."),
        ("weight = 3", "share = 3", "hosts[1]: unknown field 'share'"),
        ("weight = 3", "weight = -1", "hosts[1].weight: Ensure this value is greater"),
        ('"least_busy"', '"random"', "strategy: Value 'random' is not a valid choice"),
    ],
)
def test_a_mistake_is_reported_with_its_path(old, new, problem):
    assert old in FILE
    with pytest.raises(ConfigError) as caught:
        made(FILE.replace(old, new))
    [found] = caught.value.problems
    assert found.startswith(f"model_pools[quick].{problem}")
    assert not LanguageModel.objects.exists()


def test_a_name_that_a_model_has_as_its_alias_is_refused():
    taken = FILE.replace('name = "qwen"', 'name = "qwen"\n  alias = "quick"', 1)
    with pytest.raises(ConfigError, match="as its alias"):
        made(taken)


@pytest.mark.parametrize("may_see", [True, False])
def test_the_page_exports_pools_to_those_who_may_see_them(client: Client, may_see):
    made()
    user = User.objects.create_user("ops", is_staff=True)
    permissions = Permission.objects.filter(codename__startswith="view_")
    if not may_see:
        permissions = permissions.exclude(codename="view_modelpool")
    user.user_permissions.set(permissions)
    client.force_login(user)
    text = client.get(reverse("admin:config_export")).content.decode()
    assert ("[[model_pools]]" in text) is may_see
