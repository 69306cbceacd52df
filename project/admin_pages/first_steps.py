"""First steps of an installation: what is done, and where to do the rest.

Each step checks the present state, so it ticks itself, and opens again if what it
checks is lost. Staff see the steps that their permissions let them take.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.contrib.admin import AdminSite
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.db import connection
from django.db.models import Exists, Model, OuterRef, QuerySet, Subquery
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.formats import date_format
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache

from conversations.engine.database import disk_space
from llm.models import ApiKey, LanguageModel, ModelProbe, Provider, is_disabled
from project.diagnosis.facts import (
    LOOPBACK,
    find_newest_backup,
    has_live_worker,
    is_recent,
    is_secret_strong,
)
from project.environment.provider_accounts import DEMO
from project.startup.isolated_tools import list_isolated_tools
from tools.models import Tool
from tools.python import sandbox

OPERATE = "conversations.change_maintenance"
INSPECT = "conversations.inspect_turn"
PROVIDE = "llm.change_provider"
OFFER = "llm.change_languagemodel"
INVITE = "auth.change_user"
CHANGE_TOOLS = "tools.change_tool"
SAMPLE_TOOL = "weather_demo"  # whose answers are made up
#: Each step that is always shown, with the permission to take it.
STEPS = {
    "secrets": OPERATE,
    "https": OPERATE,
    "database": OPERATE,
    "backup": OPERATE,
    "mail": OPERATE,
    "worker": INSPECT,
    "provider": PROVIDE,
    "model": OFFER,
    "administrator": INVITE,
}


@dataclass(frozen=True, slots=True)
class Step:
    name: str
    title: str
    is_done: bool
    state: str  # a sentence: what was found
    advice: str  # how it is done
    url: str
    action: str  # the text of the link
    command: str = ""  # for the server's shell or its settings


def first_steps(request: HttpRequest) -> list[Step]:
    """At most eight queries."""
    makers = {
        "secrets": _secrets,
        "https": _https,
        "database": _database,
        "backup": _backup,
        "mail": _mail,
        "worker": _worker,
        "provider": _provider,
        "model": _model,
        "administrator": _administrator,
    }
    needed = dict(STEPS)
    if list_isolated_tools():
        makers["sandbox"] = _sandbox
        needed["sandbox"] = OPERATE
    if _is_sample_tool_offered():
        makers["sample"] = _sample_tool
        needed["sample"] = CHANGE_TOOLS
    has_perm = request.user.has_perm
    return [make(request) for name, make in makers.items() if has_perm(needed[name])]


def first_steps_urls(site: AdminSite) -> list[URLPattern]:
    def show(request: HttpRequest) -> HttpResponse:
        steps = first_steps(request)
        if not steps:
            raise PermissionDenied
        context = {
            **site.each_context(request),
            "title": _("First steps"),
            "steps": steps,
        }
        return TemplateResponse(request, "admin/first_steps.html", context)

    view = site.admin_view(never_cache(show))
    return [path("first-steps/", view, name="first_steps")]


def _page(name: str) -> str:
    """The place of what is done outside the admin: it is described there."""
    return f"{reverse('admin:first_steps')}#step-{name}"


def _list_or_form(request: HttpRequest, model: type[Model]) -> str:
    """The form of a new row, or the list for those who may only change rows."""
    app, name = model._meta.app_label, model._meta.model_name
    may_add = request.user.has_perm(f"{app}.add_{name}")
    return reverse(f"admin:{app}_{name}_{'add' if may_add else 'changelist'}")


def _secrets(request: HttpRequest) -> Step:
    is_strong = is_secret_strong()
    if not is_strong:
        state = _("SECRET_KEY can be guessed: it is too short or too plain.")
    elif settings.DEBUG:
        state = _("DEBUG is on: error pages show the server's settings.")
    else:
        state = _("They are long enough to be safe.")
    return Step(
        "secrets",
        _("Secret keys"),
        is_strong and not settings.DEBUG,
        state,
        _(
            "Leave SECRET_KEY unset, and the server makes one and keeps it in its data"
            " folder; or set one made at random. DEBUG is for development only."
        ),
        _page("secrets"),
        _("How to set them"),
        "SECRET_KEY=$(openssl rand -hex 32)",
    )


def _https(request: HttpRequest) -> Step:
    host = urlsplit(f"//{request.get_host()}").hostname
    is_local = settings.HOST in LOOPBACK and host in LOOPBACK
    if settings.BEHIND_HTTPS:
        state = _("Pages and cookies are sent over HTTPS only.")
    elif is_local:
        state = _("Not needed while only this machine can reach the server.")
    else:
        state = _("Passwords and chats cross the network in the clear.")
    return Step(
        "https",
        _("HTTPS"),
        settings.BEHIND_HTTPS or is_local,
        state,
        _(
            "Put a proxy with a certificate in front (an example is"
            " deploy/nginx.conf), then set this and start the server again."
        ),
        _page("https"),
        _("How to set it up"),
        "BEHIND_HTTPS=true",
    )


def _database(request: HttpRequest) -> Step:
    has_room = disk_space.has_room()
    if not has_room:
        state = _("The disk is full, so nothing can be saved.")
    elif connection.vendor == "sqlite":
        state = _("SQLite, for one server process.")
    else:
        state = _("PostgreSQL, for any number of processes.")
    return Step(
        "database",
        _("Database"),
        has_room,
        state,
        _(
            "One process with SQLite is enough for most installations. Several need"
            " PostgreSQL; Redis makes them faster. Either needs free space on its disk."
        ),
        _page("database"),
        _("How to choose one"),
        "DATABASE_URL=postgres://user:password@host/name\n"
        "REDIS_URL=redis://host:6379/0  # optional",
    )


def _backup(request: HttpRequest) -> Step:
    newest = find_newest_backup()
    if newest is None:
        state = _("None was made yet.")
    else:
        day = date_format(timezone.localtime(newest.finished_at), "DATE_FORMAT")
        state = _("The last one was made on %(day)s.") % {"day": day}
    return Step(
        "backup",
        _("Backup"),
        is_recent(newest),
        state,
        _(
            "This copies the database, files and secrets while the server runs; have"
            " it done each day. If another program makes backups, let it run “backup"
            " --noted” at its end."
        ),
        _page("backup"),
        _("How to make one"),
        f"{settings.LOCATIONS.command} backup /backup",
    )


def _mail(request: HttpRequest) -> Step:
    return Step(
        "mail",
        _("Mail"),
        settings.SENDS_MAIL,
        _("New passwords and confirmations of addresses are sent by mail.")
        if settings.SENDS_MAIL
        else _("No mail server is set, so nobody can reset a forgotten password."),
        _(
            "Name your organisation's mail server. Without one, mails are only written"
            " to the server's output."
        ),
        _page("mail"),
        _("How to set it up"),
        "MAIL_HOST=smtp.example.org\nMAIL_USER=parley\nMAIL_PASSWORD=...\n"
        "MAIL_FROM=parley@example.org",
    )


def _worker(request: HttpRequest) -> Step:
    is_alive = has_live_worker()
    return Step(
        "worker",
        _("Worker"),
        is_alive,
        _("A process answers messages.")
        if is_alive
        else _("No process answers messages, so they wait."),
        _(
            "With SQLite the server answers itself. With PostgreSQL, start at least one"
            " worker."
        ),
        reverse("admin:conversations_engine"),
        _("Look at the processes"),
        f"{settings.LOCATIONS.command} worker",
    )


def _provider(request: HttpRequest) -> Step:
    providers = [
        row
        for row in _with_usable_keys().exclude(kind=DEMO)[:50]
        if not is_disabled(row.kind)
    ]
    probes = _newest_probes(providers)
    silent = {row.pk: _why_silent(row, probes[row.pk]) for row in providers}
    answering = next((row for row in providers if not silent[row.pk]), None)
    if answering:
        state = _("%(name)s answers.") % {"name": answering.name}
    elif providers:
        state = silent[providers[0].pk] % {"name": providers[0].name}
    else:
        state = _("There is only the demo, which is no AI.")
    if not providers:
        url, action = _list_or_form(request, Provider), _("Add a provider")
    else:
        shown = answering or providers[0]
        url = reverse("admin:llm_provider_probe", args=[shown.pk])
        action = _("Probe it")
    return Step(
        "provider",
        _("Provider"),
        answering is not None,
        state,
        _(
            "Add a provider with its key. “Save and test connection” adds a model, and"
            " Probe finds out what it can do."
        ),
        url,
        action,
    )


def _with_usable_keys() -> QuerySet[Any]:
    """Providers, those that are on first, and whether a key of theirs `may_work`."""
    keys = ApiKey.objects.filter(provider=OuterRef("pk")).unexpired()
    rows = Provider.objects.order_by("-enabled", "pk")
    return rows.annotate(may_work=Exists(keys))


def _newest_probes(providers: Sequence[Any]) -> dict[int, list[Any]]:
    """By provider, the findings of the newest probe that has ended of each model that
    is switched on; of all its models if none of those was probed. None for a probe of
    what the provider was before a change."""
    probes = ModelProbe.objects.filter(model=OuterRef("pk"), finished_at__isnull=False)
    newest = probes.order_by("-pk").values("pk")[:1]
    models = LanguageModel.objects.filter(provider__in=providers)
    rows = models.annotate(newest=Subquery(newest)).filter(newest__isnull=False)
    pks = rows.values_list("newest", flat=True)[:1000]
    found = ModelProbe.objects.filter(pk__in=list(pks))
    of_all: dict[int, list[Any]] = {row.pk: [] for row in providers}
    of_enabled: dict[int, list[Any]] = {row.pk: [] for row in providers}
    for probe in found.select_related("model__provider"):
        findings = None if probe.is_outdated else probe.findings
        of_all[probe.model.provider_id].append(findings)
        if probe.model.enabled:
            of_enabled[probe.model.provider_id].append(findings)
    return {pk: of_enabled[pk] or of_all[pk] for pk in of_all}


def _why_silent(provider: Any, probes: Sequence[Any]) -> str:
    """A sentence with its name to fill in; "" if one of its models has answered."""
    if not provider.enabled:
        return _("%(name)s is switched off.")
    if not provider.may_work and provider.host and provider.host.needs_key:
        return _("%(name)s has no key that may be used.")
    if not probes:
        return _("%(name)s was not probed yet.")
    current = [findings for findings in probes if findings is not None]
    if not current:
        return _("%(name)s has changed since it was probed.")
    if any(_has_answered(findings) for findings in current):
        return ""
    return _("%(name)s does not answer.")


def _has_answered(findings: Sequence[Any]) -> bool:
    return any(
        each["feature"] == "text" and each["outcome"] == "works" for each in findings
    )


def _model(request: HttpRequest) -> Step:
    usable = LanguageModel.objects.usable().exclude(provider__kind=DEMO)
    model = usable.order_by("-is_default", "pk").first()
    return Step(
        "model",
        _("A model for people"),
        model is not None,
        _("%(name)s can be chosen in the chat.") % {"name": model.label or model.name}
        if model
        else _("People can choose no model but the demo."),
        _("Switch on the models that people may use, and choose the default."),
        reverse("admin:llm_languagemodel_changelist"),
        _("Choose models"),
    )


def _administrator(request: HttpRequest) -> Step:
    others = User.objects.filter(is_superuser=True, is_staff=True, is_active=True)
    has_second = len(others.values("pk")[:2]) > 1
    return Step(
        "administrator",
        _("A second administrator"),
        has_second,
        _("Somebody can help if one is away.")
        if has_second
        else _("Nobody else can come in if this password is lost."),
        _("Add a user, then tick “Staff status” and “Superuser status”."),
        reverse("admin:auth_user_changelist")
        if has_second
        else _list_or_form(request, User),
        _("Look at the users") if has_second else _("Add a user"),
    )


def _sandbox(request: HttpRequest) -> Step:
    names = ", ".join(list_isolated_tools())
    is_available = sandbox.is_available()
    state = _("%(names)s: in a sandbox without network.")
    if not is_available and settings.ISOLATED_REQUIRE_SANDBOX:
        state = _("%(names)s: each call fails, as there is no sandbox.")
    elif not is_available:
        state = _("%(names)s: limited, but the network and all files are within reach.")
    return Step(
        "sandbox",
        _("Isolated tools"),
        is_available,
        state % {"names": names},
        _(
            "The sandbox needs Linux with user namespaces, and unshare, setpriv and"
            " mount of util-linux. Most containers have none: run workers outside, or"
            " use only tools whose code you trust."
        ),
        _page("sandbox"),
        _("What it needs"),
        "unshare --user --map-root-user --net true && echo ok",
    )


def _is_sample_tool_offered() -> bool:
    """Whether models of real providers may answer with made-up weather."""
    real = LanguageModel.objects.usable().exclude(provider__kind=DEMO)
    return Tool.objects.filter(Exists(real), name=SAMPLE_TOOL, enabled=True).exists()


def _sample_tool(request: HttpRequest) -> Step:
    row = Tool.objects.filter(name=SAMPLE_TOOL).values_list("pk", flat=True)
    return Step(
        "sample",
        _("Sample tool"),
        False,  # the step goes with the tool
        _("Real models are offered %(name)s, whose weather is made up.")
        % {"name": SAMPLE_TOOL},
        _("It is for trying tools. Switch it off before people rely on answers."),
        reverse("admin:tools_tool_change", args=[row.get()]),
        _("Switch it off"),
    )


def checklist(request: HttpRequest) -> dict[str, Any]:
    """Context of the admin's index."""
    steps = first_steps(request)
    done = sum(step.is_done for step in steps)
    return {"steps": steps, "steps_done": done, "is_complete": done == len(steps)}
