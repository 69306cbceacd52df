"""Probes in the background: a thread writes each finding to the row of its probe.

The thread has an event loop and connections of its own, so a host that is slow or dead
holds up nothing but its probe. What the probe finds is stored beside the capabilities
that staff entered, which override it. Synchronous.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

from django.db import DatabaseError, connections, transaction
from django.utils import timezone
from django.utils.translation import gettext as _

from llm import router
from llm.concurrency.job_thread import start_job
from llm.error_texts.for_staff import describe_error
from llm.error_texts.staff_instructions import instruct
from llm.errors import InvalidKey, LLMError
from llm.http import client
from llm.keys.pool import KeyPool
from llm.keys.refusals import note_refusal
from llm.models import ApiKey, LanguageModel, ModelCall, ModelProbe, Provider
from llm.pricing.caller import Caller
from llm.probing.features import FeatureProbe, probe_features
from llm.probing.findings import Finding
from llm.provider import Route

MAX_RUNNING = 4  # probes at once, in all processes
KEPT = 10  # probes of one model; older ones are deleted

logger = logging.getLogger(__name__)


class ProbeRefused(Exception):
    """The probe cannot start; the message says why."""


@transaction.atomic
def start_probe(model: LanguageModel, user: Any) -> ModelProbe:
    """Probe the model on a thread; the running probe if there is one. Raises
    ProbeRefused."""
    # Of two people who press the button at once, the second gets the probe of the
    # first.
    Provider.objects.select_for_update(no_key=True).get(pk=model.provider_id)
    if (
        running := ModelProbe.objects.running().filter(model=model).first()
    ) is not None:
        return running
    if ModelProbe.objects.running().count() >= MAX_RUNNING:
        raise ProbeRefused(_("Other probes are running; wait for their end."))
    try:
        route_to_probe(model)
    except LLMError as exc:
        raise ProbeRefused(describe_error(exc)) from exc
    kept = model.probes.values_list("pk", flat=True)[: KEPT - 1]
    model.probes.exclude(pk__in=list(kept)).delete()
    row = ModelProbe.objects.create(model=model, started_by=user)
    run = partial(_run_on_thread, row.pk)
    transaction.on_commit(partial(start_job, run, f"probe-{row.pk}"))
    return row


def _run_on_thread(pk: int) -> None:
    try:
        run_probe(pk)
    except DatabaseError as exc:
        # The page shows the probe as interrupted.
        logger.error("probe %s failed: %s", pk, type(exc).__name__)
    finally:
        connections.close_all()  # the thread ends, so nobody would close its own later


def run_probe(pk: int) -> None:
    """Try all features and store each finding at once."""
    row = ModelProbe.objects.select_related("model__provider").get(pk=pk)
    try:
        first, *others = routes_to_probe(row.model)
    except LLMError as exc:
        row.error = str(exc)[:300]
        _end(row)
        return
    keys: dict[int | None, str] = {
        key.pk: str(key) for key in row.model.provider.keys.all()
    }
    row.target = row.model.probe_target
    probe = FeatureProbe(first, others, keys)
    with asyncio.Runner() as runner:
        findings = probe_features(probe)
        try:
            while (finding := runner.run(_next(findings))) is not None:
                _store(row, finding, probe)
        finally:
            runner.run(findings.aclose())
            runner.run(client.aclose())
    _end(row)


async def _next(findings: Any) -> Finding | None:
    return await anext(findings, None)


def route_to_probe(model: LanguageModel) -> Route:
    """The route to the model, which may be switched off, with the best of its keys.
    Raises LLMError."""
    return routes_to_probe(model)[0]


def route_to_test(model: LanguageModel) -> Route:
    """The same, but only with a key that serves people too: not with one that is
    disabled, rests, drains or has expired."""
    provider = model.provider
    _check_enabled(provider)
    rows = list(provider.keys.all())
    if not rows:
        return route_to_probe(model)
    error: LLMError | None = None
    for key in _keys_to_try(provider)[0]:
        try:
            return router.route_by(model, key)
        except InvalidKey as exc:
            error = exc
    if error is None:
        pool = KeyPool(provider)
        pool.fill(provider, [key for key in rows if key.weight])
        error = pool.refusal(model.name, time.time())
    raise error


def routes_to_probe(model: LanguageModel) -> Sequence[Route]:
    """A route for each key that may be used now; if there is none, for the others. At
    least one. Raises LLMError."""
    provider = model.provider
    _check_enabled(provider)
    error: LLMError | None = None
    for keys in _keys_to_try(provider):
        routes = []
        for key in keys:
            try:
                routes.append(router.route_by(model, key))
            except InvalidKey as exc:
                error = exc
        if routes:
            return routes
    if error is None and (provider.host is None or not provider.host.needs_key):
        return [router.route_by(model, None)]
    raise error or InvalidKey(_("There is no key; add one first."))


def _check_enabled(provider: Provider) -> None:
    if why := provider.why_disabled:
        raise InvalidKey(_("Not tested: %(why)s.") % {"why": instruct(why)})


def _keys_to_try(provider: Provider) -> tuple[Sequence[ApiKey], Sequence[ApiKey]]:
    """Those that may be used now, and the others."""
    usable = set(provider.keys.usable().values_list("pk", flat=True))
    keys = list(provider.keys.all())
    return (
        [key for key in keys if key.pk in usable],
        [key for key in keys if key.pk not in usable],
    )


def _store(row: ModelProbe, finding: Finding, probe: FeatureProbe) -> None:
    replies, probe.replies = probe.replies, []
    _record(replies, Caller(user_id=row.started_by_id))
    refused, probe.refused = probe.refused, []
    for route, error in refused:
        note_refusal(route, error)
    row.findings = [*row.findings, finding.to_dict()]
    row.seen_at = timezone.now()
    row.save(update_fields=["findings", "target", "seen_at"])


def _record(replies: Sequence[Any], caller: Caller) -> None:
    rows = []
    for reply in replies:
        if not reply.call.started_at:
            continue  # no request was sent
        builder = reply.builder
        row = ModelCall.of(
            reply.call,
            reply.route,
            start=builder.start_delta,
            usage=builder.call_usage,
            finish=builder.finish,
            cancelled=reply.is_stopped,
            caller=caller,
        )
        # A refused image says nothing about the key.
        row.key_error = row.key_error if isinstance(reply.error, InvalidKey) else ""
        rows.append(row)
    ModelCall.objects.record_all(rows)


@transaction.atomic
def _end(row: ModelProbe) -> None:
    row.finished_at = row.seen_at = timezone.now()
    row.save(update_fields=["error", "finished_at", "seen_at"])
    found: dict[str, bool] = {}
    for finding in row.findings:
        found |= finding["capabilities"]
    if found:
        # What this probe could not tell stays as an earlier one of the same host
        # found it.
        models = LanguageModel.objects.filter(pk=row.model_id)
        known = models.select_for_update().values_list(
            "probed_capabilities", "probed_target"
        )
        for earlier, target in known:
            counts = target in {None, row.target}
            models.update(
                probed_capabilities={**((counts and earlier) or {}), **found},
                probed_target=row.target,
                probed_at=row.finished_at,
            )
