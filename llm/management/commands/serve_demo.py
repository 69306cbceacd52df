"""Serves the demo provider in a project that is not Parley's own."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import uvicorn
from django.core.management.base import BaseCommand
from django.db import connection, transaction

from llm.conf import settings
from llm.demo.app import PACES, application
from llm.demo.key import demo_key
from llm.models import ApiKey, LanguageModel, Provider

KIND = "demo"


class Command(BaseCommand):
    help = (
        "Serve the demo provider at SELF_URL, and create its rows. It is no AI, and"
        " needs no key: to try llm.api and to test code that uses it."
    )

    def handle(self, **options: Any) -> None:
        create_rows()
        connection.close()  # it is not used while the demo is served
        address = urlsplit(settings.SELF_URL)
        port = address.port or (443 if address.scheme == "https" else 80)
        self.stdout.write(f"The demo provider is running at {settings.SELF_URL}")
        self.stdout.flush()
        uvicorn.run(
            application,
            host=address.hostname or "127.0.0.1",
            port=port,
            lifespan="off",
            log_level="warning",
        )


@transaction.atomic
def create_rows() -> None:
    """Create what is missing of the demo's provider, key and models."""
    provider = Provider.objects.filter(kind=KIND).first() or Provider.objects.create(
        name=KIND, kind=KIND, allow_private_network=True
    )
    origin = provider.origin
    keys = provider.keys.all()
    if not any(key.is_entered_for(demo_key(), origin) for key in keys):
        key = ApiKey(provider=provider, label=KIND)
        key.enter(demo_key(), origin)
        key.save()
    for name in PACES:
        provider.models.get_or_create(name=name)
    if not LanguageModel.objects.filter(is_default=True).exists():
        provider.models.get(name=KIND).make_default()
