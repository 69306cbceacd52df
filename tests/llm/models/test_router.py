from __future__ import annotations

import weakref
from collections import Counter
from datetime import timedelta

import pytest
from cryptography.fernet import Fernet
from django.contrib.auth.models import AnonymousUser, Group, User
from django.core.exceptions import ValidationError
from django.utils import timezone

from llm import route_cache, router
from llm.errors import BadRequest, InvalidKey, ModelNotAvailable
from llm.models import ApiKey, LanguageModel, Provider

pytestmark = pytest.mark.django_db


@pytest.fixture
def groq() -> Provider:
    provider = Provider.objects.create(name="Groq", kind="groq")
    provider.keys.create(secret="gsk-groq")
    return provider


@pytest.fixture
def openai() -> Provider:
    provider = Provider.objects.create(name="OpenAI", kind="openai")
    provider.keys.create(secret="sk-openai")
    return provider


def refusal(name: str | None, **options: object) -> str:
    with pytest.raises(ModelNotAvailable) as caught:
        router.resolve(name, **options)
    assert caught.value.code == "E_MODEL_NOT_AVAILABLE"
    assert caught.value.param == "model"
    return str(caught.value)


def test_an_endpoint_leaves_the_key_that_threads_share_as_it_was(groq: Provider):
    key = groq.keys.get()
    moved = Provider.objects.get()
    moved.base_url = "https://moved.example/v1"
    with pytest.raises(InvalidKey):
        router.endpoint_of(moved, key)
    assert key.provider == groq
    assert (key.provider.origin, key.secret.reveal()) == (groq.origin, "gsk-groq")


# By name


@pytest.mark.parametrize("name", ["fast", "Groq/llama-3", "llama-3"])
def test_a_model_is_found_by_alias_full_name_and_plain_name(groq: Provider, name: str):
    row = groq.models.create(name="llama-3", alias="fast")
    route = router.resolve(name)
    assert route.model_id == row.pk
    assert (route.model, route.name) == ("llama-3", "fast")


def test_the_pool_of_one_message_does_not_show_in_another(groq: Provider):
    groq.models.create(name="llama-3")
    router.find_model("llama-3").pool_name = "some pool"
    assert router.find_model("llama-3").pool_name == ""


def test_names_with_slashes_are_found_as_well(groq: Provider):
    row = groq.models.create(name="openai/gpt-oss-120b")
    for name in ("openai/gpt-oss-120b", "Groq/openai/gpt-oss-120b"):
        assert router.resolve(name).model_id == row.pk


def test_an_alias_wins_over_a_full_name_and_that_over_a_plain_one(groq, openai):
    plain = groq.models.create(name="OpenAI/gpt")
    full = openai.models.create(name="gpt")
    assert router.resolve("OpenAI/gpt").model_id == full.pk
    alias = groq.models.create(name="other", alias="gpt")
    assert router.resolve("gpt").model_id == alias.pk
    assert router.resolve("Groq/OpenAI/gpt").model_id == plain.pk


def test_an_ambiguous_name_must_be_qualified(groq, openai):
    groq.models.create(name="gpt")
    model = openai.models.create(name="gpt")
    assert refusal("gpt") == (
        "Several providers have a model 'gpt'; choose one of Groq/gpt, OpenAI/gpt."
    )
    model.enabled = False
    model.save()
    assert router.resolve("gpt").provider_name == "Groq"


@pytest.mark.parametrize("name", ["nothing", "Groq/nothing", "nothing/llama", "", "/"])
def test_an_unknown_name_is_refused(groq: Provider, name: str):
    groq.models.create(name="llama")
    assert refusal(name) == f"There is no model {name!r}; choose another one."


# The default


def test_no_name_is_the_default_model_and_else_the_first(groq, openai):
    first = groq.models.create(name="first")
    second = openai.models.create(name="second")
    assert router.resolve(None).model_id == first.pk
    second.make_default()
    assert router.resolve(None).model_id == second.pk


def test_the_default_makes_way_where_it_cannot_be_used(groq, openai):
    first = groq.models.create(name="first")
    openai.models.create(name="second", is_default=True, enabled=False)
    assert router.resolve(None).model_id == first.pk


def test_without_any_model_there_is_no_default(groq: Provider):
    groq.models.create(name="off", enabled=False)
    message = "No model is available; ask the staff to set one up."
    assert refusal(None) == message


def test_being_the_default_passes_from_one_to_the_next(groq: Provider):
    models = [groq.models.create(name=name, is_default=True) for name in "abc"]
    assert list(LanguageModel.objects.filter(is_default=True)) == [models[-1]]


# What is switched off


def test_a_disabled_model_is_refused(groq: Provider):
    groq.models.create(name="llama", alias="fast", enabled=False)
    message = "The model 'fast' is not available: the model is switched off."
    assert refusal("fast") == refusal("Groq/llama") == refusal("llama") == message


def test_models_of_a_disabled_provider_are_refused(groq: Provider):
    groq.models.create(name="llama")
    Provider.objects.update(enabled=False)
    assert refusal("llama") == (
        "The model 'Groq/llama' is not available: its provider 'Groq' is switched off."
    )


def test_the_environment_switches_kinds_off(groq: Provider, settings):
    model = groq.models.create(name="llama", is_default=True)
    settings.DISABLED_PROVIDERS = frozenset({"groq"})
    assert refusal("llama") == (
        "The model 'Groq/llama' is not available:"
        " ENABLE_GROQ=false switches its provider off."
    )
    assert refusal(None).startswith("No model is available")
    with pytest.raises(ModelNotAvailable):
        router.route_of(model)


def test_a_kind_that_the_code_no_longer_knows_is_refused(groq: Provider):
    groq.models.create(name="llama")
    Provider.objects.update(kind="gone")
    assert "kind 'gone' is unknown" in refusal("llama")
    assert list(router.available(None)) == []


# Permissions


@pytest.fixture
def restricted(groq: Provider) -> LanguageModel:
    model = groq.models.create(name="secret-model", alias="hidden", is_default=True)
    model.groups.add(Group.objects.create(name="research"))
    return model


def test_a_forbidden_model_looks_like_an_unknown_one(restricted: LanguageModel):
    outsider = User.objects.create(username="outsider")
    for user in (outsider, AnonymousUser()):
        for name in ("hidden", "Groq/secret-model", "secret-model"):
            unknown = refusal("nowhere", user=user).replace("nowhere", name)
            assert refusal(name, user=user) == unknown
        assert refusal(None, user=user).startswith("No model is available")
        assert list(router.available(user)) == []


def test_a_forbidden_model_makes_no_name_ambiguous(restricted, openai: Provider):
    free = openai.models.create(name="secret-model")
    outsider = User.objects.create(username="outsider")
    assert router.resolve("secret-model", user=outsider).model_id == free.pk


def test_members_superusers_and_the_program_itself_may_use_it(restricted):
    member = User.objects.create(username="member")
    member.groups.add(restricted.groups.get())
    superuser = User.objects.create(username="root", is_superuser=True)
    for user in (member, superuser, None):
        assert router.resolve("hidden", user=user).model_id == restricted.pk
        assert list(router.available(user)) == [restricted]


def test_belonging_to_two_of_its_groups_shows_a_model_once(restricted):
    other = Group.objects.create(name="other")
    restricted.groups.add(other)
    member = User.objects.create(username="member")
    member.groups.set(Group.objects.all())
    assert list(router.available(member)) == [restricted]


def test_of_two_groups_with_keys_the_older_one_pays(groq: Provider):
    groq.models.create(name="llama")
    younger, older = (Group(name=name, pk=pk) for name, pk in (("a", 52), ("b", 51)))
    member = User.objects.create(username="member")
    for group in (younger, older):
        group.save()
        member.groups.add(group)
        groq.keys.create(label=group.name, secret=f"sk-{group.name}", group=group)
    assert router.resolve("llama", user=member).key_audience.group_id == older.pk


def test_an_own_key_that_cannot_be_sent_is_for_its_owner_to_enter(groq: Provider):
    groq.accepts_own_keys = True
    groq.save()
    groq.models.create(name="llama")
    owner = User.objects.create(username="owner")
    key = ApiKey.every.create(provider=groq, owner=owner, label="own", secret="gsk-own")
    assert router.resolve("llama", user=owner).key_source == "own"
    key.enter("gsk-own", "https://before.test:443")
    key.save()
    for _ in ("entered for another address", "empty"):
        with pytest.raises(InvalidKey, match="Your own key") as caught:
            router.resolve("llama", user=owner)
        assert "staff" not in str(caught.value)
        ApiKey.every.filter(pk=key.pk).update(secret="")


# The route


def test_a_route_contains_all_that_a_call_needs(groq: Provider):
    groq.options = {"headers": {"X-Team": "a"}}
    groq.allow_private_network = True
    groq.save()
    model = groq.models.create(
        name="llama",
        capabilities={"tools": False},
        context_window=1000,
        max_output_tokens=100,
        options={"temperature": 0.2},
        prices={"input": 1, "output": 2},
    )
    route, key = router.resolve("llama"), groq.keys.get()
    assert route.endpoint.provider.name == "groq"
    assert route.endpoint.api_key == "gsk-groq"
    assert route.endpoint.headers == {"X-Team": "a"}
    assert route.endpoint.allow_private_network
    assert route.endpoint.route == f"{groq.pk}:{key.pk}"
    assert (route.model_id, route.provider_id, route.key_id) == (
        model.pk,
        groq.pk,
        key.pk,
    )
    assert route.capabilities.tools is False  # as staff set it
    assert route.capabilities.context_window == route.context_window
    assert (route.context_window, route.max_output_tokens) == (1000, 100)
    assert route.defaults == {"temperature": 0.2}
    assert route.prices == {"input": 1, "output": 2}
    assert "gsk-groq" not in repr(route)


def test_the_codec_is_the_rows_or_the_hosts_first(openai: Provider):
    model = openai.models.create(name="gpt")
    assert router.route_of(model).endpoint.codec.name == "openai_responses"
    openai.codec = "openai_chat"
    openai.save()
    assert router.resolve("gpt").endpoint.codec.name == "openai_chat"


def test_a_codec_that_no_longer_exists_is_reported(openai: Provider):
    openai.models.create(name="gpt")
    Provider.objects.update(codec="gone")
    with pytest.raises(
        BadRequest, match="'OpenAI' does not support the wire format 'gone'"
    ):
        router.resolve("gpt")


@pytest.mark.parametrize(
    ("kind", "base_url", "expected_url"),
    [
        ("groq", "", ""),
        ("groq", "https://api.groq.com/openai/v1", ""),  # no other than the code's
        ("groq", "https://proxy.example.com/v1", "https://proxy.example.com/v1"),
        ("demo", "", "http://127.0.0.1:8765/demo/v1"),
    ],
)
def test_an_address_is_the_rows_the_hosts_or_our_own(
    settings, kind: str, base_url: str, expected_url: str
):
    settings.SELF_URL = "http://127.0.0.1:8765"
    provider = Provider.objects.create(name="p", kind=kind, base_url=base_url)
    provider.keys.create(secret="k")
    provider.models.create(name="m")
    assert router.resolve("m").endpoint.base_url == expected_url
    assert provider.address.startswith("http")


# Keys


def test_a_key_that_rests_comes_after_those_that_do_not(groq: Provider):
    """It is still a way to the model: a call waits for it a little."""
    model, now = groq.models.create(name="llama"), timezone.now()
    ApiKey.objects.update(state="resting", rest_until=now + timedelta(minutes=1))
    assert router.route_of(model).endpoint.api_key == "gsk-groq"
    groq.keys.create(label="other", secret="gsk-other")
    assert router.route_of(model).endpoint.api_key == "gsk-other"
    ApiKey.objects.filter(label="default").update(
        rest_until=now - timedelta(seconds=1), weight=30_000
    )
    assert router.route_of(model).endpoint.api_key == "gsk-groq"


@pytest.mark.parametrize("change", [{"state": "disabled"}, {"weight": 0}])
def test_without_a_usable_key_the_error_points_to_staff(groq: Provider, change):
    model = groq.models.create(name="llama")
    ApiKey.objects.update(**change)
    with pytest.raises(InvalidKey) as caught:
        router.route_of(model)
    assert str(caught.value) == (
        "The provider 'Groq' has no active key; ask the staff to add one."
    )


def test_a_host_that_needs_no_key_goes_without_or_with_one():
    provider = Provider.objects.create(name="Local", kind="ollama")
    model = provider.models.create(name="llama")
    route = router.route_of(model)
    assert (route.endpoint.api_key, route.key_id) == ("", None)
    assert route.endpoint.route == f"{provider.pk}:"
    provider.keys.create(secret="behind-a-proxy")
    assert router.route_of(model).endpoint.api_key == "behind-a-proxy"


@pytest.mark.parametrize(
    "change",
    [
        {"state": "disabled"},
        {"drains_at": timezone.now()},
        {"expires_at": timezone.now()},
    ],
)
def test_a_key_at_its_end_does_not_leave_calls_without_one(change):
    provider = Provider.objects.create(name="Local", kind="openai_compatible")
    model = provider.models.create(name="llama")
    provider.keys.create(secret="behind-a-proxy")
    ApiKey.objects.update(**change)
    with pytest.raises(InvalidKey, match="no active key"):
        router.route_of(model)
    provider.keys.all().delete()
    assert router.route_of(model).key_id is None


def test_keys_share_the_calls_by_weight(groq: Provider):
    model = groq.models.create(name="llama")
    groq.keys.update(weight=3)
    groq.keys.create(label="b", secret="b", weight=1)
    groq.keys.create(label="c", secret="c", weight=0)
    drawn = Counter(router.route_of(model).endpoint.api_key for _ in range(200))
    assert drawn.keys() == {"gsk-groq", "b"}
    assert drawn["gsk-groq"] > drawn["b"]


def test_a_key_that_cannot_be_decrypted_is_reported_and_not_shown(groq, settings):
    model = groq.models.create(name="llama")
    settings.ENCRYPTION_KEYS = [Fernet.generate_key().decode()]
    with pytest.raises(InvalidKey) as caught:
        router.route_of(model)
    assert str(caught.value) == (
        "The key 'default' of the provider 'Groq' cannot be decrypted; ask the staff"
        " to restore ENCRYPTION_KEYS or enter it again."
    )


def test_a_key_imported_without_its_secret_is_reported(groq: Provider):
    model = groq.models.create(name="llama")
    ApiKey.objects.update(secret="")
    with pytest.raises(InvalidKey, match="'default' of the provider 'Groq' is empty"):
        router.route_of(model)


# Price


@pytest.mark.parametrize("rows", [1, 20])
@pytest.mark.parametrize("name", [None, "alias-0", "Groq/model-0", "model-0"])
def test_resolving_takes_two_queries_whatever_there_is(
    groq: Provider, django_assert_num_queries, rows: int, name: str | None
):
    user = User.objects.create(username="u")
    groups = [Group.objects.create(name=f"g{number}") for number in range(rows)]
    user.groups.set(groups)
    for number in range(rows):
        model = groq.models.create(name=f"model-{number}", alias=f"alias-{number}")
        model.groups.set(groups)
        groq.keys.create(label=f"k{number}", secret="x")
    for asker in (user, None):
        router.resolve(name, user=asker)  # the first in a process compiles the queries
        with django_assert_num_queries(2):
            router.resolve(name, user=asker)


# What staff may enter


@pytest.mark.parametrize(
    ("fields", "where"),
    [
        ({"kind": "no-such-kind"}, "kind"),
        ({"codec": "gemini"}, "codec"),
        ({"kind": "openai_compatible"}, "base_url"),
        ({"base_url": "ftp://host/v1"}, "base_url"),
        ({"base_url": "host/v1"}, "base_url"),
        ({"base_url": "https://user:pass@host/v1"}, "base_url"),
        ({"base_url": "https://host/v1?key=1"}, "base_url"),
        ({"base_url": "https://host:port/v1"}, "base_url"),
        ({"base_url": "https://[::1/v1"}, "base_url"),
        ({"name": "a/b"}, "name"),
        ({"name": " a"}, "name"),
        ({"options": ["x"]}, "options"),
        ({"options": {"headers": ["X"]}}, "options"),
        ({"options": {"headers": {"X Y": "a"}}}, "options"),
        ({"options": {"headers": {"X-Y": 1}}}, "options"),
        ({"options": {"headers": {"X-Y": "a\r\nZ: b"}}}, "options"),
        ({"options": {"headers": {"Authorization": "Bearer x"}}}, "options"),
        ({"options": {"headers": {"X-Goog-Api-Key": "x"}}}, "options"),
        ({"options": {"headers": {"Host": "elsewhere.example"}}}, "options"),
        ({"options": {"timeout": float("inf")}}, "options"),
    ],
)
def test_a_provider_that_cannot_be_called_is_refused(fields, where):
    with pytest.raises(ValidationError) as caught:
        Provider(**{"name": "p", "kind": "groq", **fields}).full_clean()
    assert list(caught.value.message_dict) == [where]


@pytest.mark.parametrize(
    "fields",
    [
        {"kind": "ollama", "base_url": "http://ollama:11434/v1"},
        {"base_url": "http://10.0.0.1:8080"},
        {"base_url": "https://[::1]/v1"},
        {"kind": "openai", "codec": "openai_chat"},
        {"name": "OpenAI (EU) 2", "options": {"headers": {"OpenAI-Project": "p"}}},
    ],
)
def test_a_usable_provider_is_chosen(fields):
    Provider(**{"name": "p", "kind": "groq", **fields}).full_clean()


@pytest.mark.parametrize(
    ("fields", "where"),
    [
        ({"alias": "a/b"}, "alias"),
        ({"alias": "a b"}, "alias"),
        ({"options": {"temprature": 1}}, "options"),
        ({"options": {"model": "x"}}, "options"),
        ({"options": "x"}, "options"),
        ({"capabilities": ["tools"]}, "capabilities"),
        ({"prices": {"input": 1}}, "prices"),
        ({"prices": 3}, "prices"),
        ({"context_window": -1}, "context_window"),
    ],
)
def test_a_model_that_cannot_be_called_is_refused(groq: Provider, fields, where):
    with pytest.raises(ValidationError) as caught:
        LanguageModel(**{"provider": groq, "name": "m", **fields}).full_clean()
    assert list(caught.value.message_dict) == [where]


@pytest.mark.parametrize("nothing", [None, "", [], {}])
def test_json_left_empty_is_an_empty_object(groq: Provider, nothing):
    groq.options = nothing
    model = LanguageModel(provider=groq, name="m", options=nothing, prices=nothing)
    for row in (groq, model):
        row.full_clean()
        row.save()
    assert Provider.objects.get().options == {}
    assert LanguageModel.objects.get().prices == {}


def test_an_empty_alias_is_none_and_two_may_have_it(groq: Provider):
    for name in ("a", "b"):
        model = LanguageModel(provider=groq, name=name, alias="")
        model.full_clean()
        model.save()
    assert [model.alias for model in LanguageModel.objects.all()] == [None, None]


# One route for all users of it


def test_equal_requests_share_one_route(groq: Provider):
    row = groq.models.create(name="llama-3", options={"seed": 1})
    first = router.resolve("llama-3")
    assert router.resolve("llama-3") is first
    LanguageModel.objects.filter(pk=row.pk).update(options={"seed": True})
    assert router.resolve("llama-3").defaults["seed"] is True
    groq.keys.all().delete()
    groq.keys.create(secret="gsk-new")
    assert router.resolve("llama-3").endpoint.api_key == "gsk-new"
    assert first.endpoint.api_key == "gsk-groq"


def test_an_unused_route_and_its_key_leave_the_cache(groq: Provider, monkeypatch):
    for name in ("llama-3", "llama-4"):
        groq.models.create(name=name)
    route = router.resolve("llama-3")
    assert router.resolve("llama-3") is route
    reference = weakref.ref(route)
    del route
    assert reference() is not None
    monkeypatch.setattr(route_cache, "MAX_AGE", 0.0)
    router.resolve("llama-4")
    assert reference() is None


def test_a_route_with_another_key_ring_is_made_anew(groq: Provider, settings):
    groq.models.create(name="llama-3")
    assert router.resolve("llama-3").endpoint.api_key == "gsk-groq"
    settings.ENCRYPTION_KEYS = [Fernet.generate_key().decode()]
    with pytest.raises(InvalidKey):
        router.resolve("llama-3")


@pytest.mark.parametrize(
    "changed",
    [
        {"base_url": "https://other.example/v1"},
        {"options": {"headers": {"X-Team": "a"}}},
        {"proxy_url": "http://proxy.example:3128"},
        {"keeps_exchanges": True},
    ],
)
def test_a_changed_provider_gives_another_route(groq: Provider, changed):
    groq.models.create(name="llama-3")
    before = router.keyless_route_of(groq.models.select_related("provider").get())
    Provider.objects.filter(pk=groq.pk).update(**changed)
    model = groq.models.select_related("provider").get()
    assert router.keyless_route_of(model) != before


# Retired models


def retire(row: LanguageModel, by: LanguageModel | None, days: int = -1) -> None:
    row.retires_at = timezone.now() + timedelta(days=days)
    row.replacement = by
    row.save()


def test_a_retired_model_is_routed_to_its_replacement_by_all_its_names(groq, openai):
    old = groq.models.create(name="old", alias="fast")
    new = openai.models.create(name="new")
    retire(old, new, days=1)
    assert router.resolve("fast").model_id == old.pk
    retire(old, new)
    for name in ("fast", "Groq/old", "old"):
        route = router.resolve(name)
        assert (route.model_id, route.replaces) == (new.pk, "fast")
    assert router.route_of(LanguageModel.objects.get(pk=old.pk)).model_id == new.pk
    assert router.resolve("new").replaces == ""
    assert list(router.available(None)) == [new]


def test_replacements_are_followed_and_circles_end(groq: Provider):
    first, second, third = (groq.models.create(name=n) for n in "abc")
    retire(first, second)
    retire(second, third)
    assert router.resolve("a").model_id == third.pk
    retire(third, first)
    assert "it was retired on" in refusal("a")
    retire(third, third)
    assert "it was retired on" in refusal("c")


def test_a_replacement_that_cannot_be_used_is_named_in_the_refusal(groq: Provider):
    old, new = groq.models.create(name="old"), groq.models.create(name="new")
    retire(old, None)
    assert "it was retired on" in refusal("old")
    retire(old, new)
    LanguageModel.objects.filter(pk=new.pk).update(enabled=False)
    assert "'Groq/new' is not available: the model is switched off" in refusal("old")


def test_the_replacement_of_the_default_model_is_the_default(groq: Provider):
    groq.models.create(name="another")
    old = groq.models.create(name="old", is_default=True)
    new = groq.models.create(name="new")
    retire(old, new)
    assert router.resolve(None).model_id == new.pk


def test_a_retired_fallback_is_left_out(groq: Provider):
    first, old = groq.models.create(name="a"), groq.models.create(name="old")
    first.fallbacks.add(old)
    retire(old, groq.models.create(name="new"))
    assert len(router.routes_of(router.resolve("a"))) == 1


def test_a_key_of_the_call_is_not_sent_to_a_replacement_s_provider(groq, openai):
    old = groq.models.create(name="old")
    retire(old, openai.models.create(name="new"))
    found = router.find_model("old")
    with pytest.raises(ModelNotAvailable, match="it was retired on"):
        router.keyless_route_of(found)
    retire(old, groq.models.create(name="near"))
    assert router.keyless_route_of(router.find_model("old")).model == "near"


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"replacement": "new"}, "Enter the date"),
        ({"replacement": "old", "retires_at": timezone.now()}, "in turn"),
        ({"replacement": "circle", "retires_at": timezone.now()}, "in turn"),
    ],
)
def test_replacements_that_lead_nowhere_are_refused(groq, fields, problem: str):
    old, new = groq.models.create(name="old"), groq.models.create(name="new")
    circle = groq.models.create(name="c", replacement=old, retires_at=timezone.now())
    rows = {"old": old, "new": new, "circle": circle}
    old.replacement = rows[fields["replacement"]]
    old.retires_at = fields.get("retires_at")
    with pytest.raises(ValidationError, match=problem):
        old.full_clean()
