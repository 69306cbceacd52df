"""CPU time of every list of the admin, with 100,000 conversations and a million items.

Each list is opened as it stands, on its last page and through every link that it
offers (filters, dates, columns to sort by), then searched for an id that exists and
for one that does not. The table shows the slowest of each list.

`ADMIN_CONVERSATIONS` sets another number of conversations, `ADMIN_LISTS` the names of
lists. Where `DATABASE_URL` names a database, the rows of an earlier run are used again.
Figures are milliseconds of CPU; over PostgreSQL, which works in another process, those
of the clock.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterator
from html import unescape

from django.conf import settings
from django.contrib import admin
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import models
from django.test import Client, RequestFactory
from django.urls import resolve

from benchmarks.admin.admin_rows import store_rows
from benchmarks.sql import read_clock
from benchmarks.table import show

CONVERSATIONS = int(os.environ.get("ADMIN_CONVERSATIONS", "100000"))
ONLY = [name for name in os.environ.get("ADMIN_LISTS", "").split(",") if name]
REPEATED = 2  # the fastest counts: others disturb the slower ones
MAX_LINKS = 4  # of one filter, which may offer hundreds of values
BOUND = 150  # milliseconds of CPU


def main() -> None:
    _prepare_database()
    settings.ALLOWED_HOSTS = ["testserver"]
    client = Client()
    resolve("/admin/")  # registers the lists
    root = User.objects.get(username="root")
    client.force_login(root, settings.AUTHENTICATION_BACKENDS[-1])
    rows = []
    for label, url, model in _lists(root):
        times = {
            query: _measure(client, url + query)
            for query in _queries(client, url, model)
        }
        slowest = max(times, key=times.__getitem__)
        slow = sum(took > BOUND for took in times.values())
        rows.append([label, times[""], len(times), slow, times[slowest], slowest[:70]])
        if os.environ.get("ADMIN_VERBOSE"):
            for query, took in sorted(times.items(), key=lambda pair: -pair[1]):
                if took > BOUND:
                    print(f"{label:28} {took:8.0f} ms  {query}", flush=True)
    show(
        f"Lists of the admin, {CONVERSATIONS:,} conversations, ms",
        [
            "list",
            "as it stands, ms",
            "pages",
            f"over {BOUND} ms",
            "slowest, ms",
            "which",
        ],
        rows,
    )


def _prepare_database() -> None:
    call_command("migrate", verbosity=0)
    if not User.objects.filter(username="root").exists():
        store_rows(CONVERSATIONS)


def _lists(root: User) -> Iterator[tuple[str, str, type[models.Model]]]:
    request = RequestFactory().get("/admin/")
    request.user = root
    for app in admin.site.get_app_list(request):
        for entry in app["models"]:
            name = str(entry["name"])
            if not ONLY or name in ONLY:
                yield name, entry["admin_url"], entry["model"]


def _queries(client: Client, url: str, model: type[models.Model]) -> list[str]:
    page = client.get(url).content.decode()
    links = {unescape(link) for link in re.findall(r'href="(\?[^"]+)"', page)}
    by_name: dict[str, list[str]] = defaultdict(list)
    for link in sorted(links):
        is_order = link.startswith("?o=")
        by_name[link if is_order else link.partition("=")[0]].append(link)
    offered = [link for same in by_name.values() for link in same[:MAX_LINKS]]
    queries = ["", "?p=100", *offered]
    if admin.site.get_model_admin(model).search_fields:
        some = (
            model._default_manager.order_by("-pk").values_list("pk", flat=True).first()
        )
        queries += [f"?q={some}", "?q=resp_absent", "?q=user77"]
    return queries


def _measure(client: Client, url: str) -> float:
    took = _once(client, url)
    if took > 4 * BOUND:
        return took
    return min(took, *(_once(client, url) for _ in range(REPEATED - 1)))


def _once(client: Client, url: str) -> float:
    began = read_clock()
    response = client.get(url)
    took = 1000 * (read_clock() - began)
    if response.status_code not in (200, 302):
        raise RuntimeError(f"{url}: {response.status_code}")
    return took
