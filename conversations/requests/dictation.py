"""Dictation: what a person has said, as text, by the model that staff name for it.

Nothing is kept of the recording. Synchronous.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.conf import settings
from django.utils import timezone
from django.utils.translation import gettext as _

from conversations.access.errors import PriceUnknown
from conversations.access.limits.admission import admit_request, charge_call
from conversations.access.limits.applicable import limits_of
from conversations.input.checks import InputError
from conversations.models import AccessToken
from conversations.models.user_settings import UserSettings
from conversations.requests.errors import InvalidInput
from conversations.turns.file_kinds import format_size
from llm import router
from llm.concurrency.sync_variant import make_sync
from llm.concurrency.thread_lending import lend_thread_or_refuse
from llm.errors import ModelNotAvailable, RateLimited
from llm.generation.transcription import (
    KINDS,
    PATIENCE,
    AudioFile,
    audio_file_of,
    transcribe,
)
from llm.http.client import ProviderCall
from llm.models import ModelCall
from llm.pricing.caller import UNKNOWN_CALLER, Caller

_transcribe = make_sync(transcribe)
#: After that another dictation may begin in any case: the process may have ended.
_LONGEST = timedelta(seconds=PATIENCE + 10)


def may_dictate(user: Any) -> bool:
    """Whether staff have named a model that the user may use."""
    if not settings.TRANSCRIPTION_MODEL:
        return False
    try:
        router.find_model(settings.TRANSCRIPTION_MODEL, user=user)
    except ModelNotAvailable:
        return False
    return True


def read_recording(data: bytes) -> AudioFile:
    """Raises InvalidInput."""
    limit = settings.DICTATION_MAX_SIZE
    if len(data) > limit:
        words = _("the recording is too long; at most %(size)s can be sent.")
        raise InvalidInput(InputError("file", words % {"size": format_size(limit)}))
    if (recording := audio_file_of(data)) is None:
        words = _("this is no recording; send one of these kinds: %(kinds)s.")
        raise InvalidInput(InputError("file", words % {"kinds": ", ".join(KINDS)}))
    return recording


def dictate(
    user: Any,
    recording: AudioFile,
    token: AccessToken | None = None,
    *,
    caller: Caller = UNKNOWN_CALLER,
) -> str:
    """The text of the recording. One at a time for each user. Raises LLMError."""
    if not may_dictate(user):
        raise ModelNotAvailable(_("No model for dictation is available to you."))
    if token is not None and token.budget is not None:
        raise PriceUnknown  # what it costs is known only afterwards
    rows, until = UserSettings.objects, timezone.now() + _LONGEST
    if not rows.begin_dictation(user.pk, until):
        raise RateLimited(_("Your last dictation is still being written; wait for it."))
    try:
        return _dictate(user, recording, token, caller)
    finally:
        rows.end_dictation(user.pk, until)


def _dictate(
    user: Any, recording: AudioFile, token: AccessToken | None, caller: Caller
) -> str:
    applied = limits_of(user.pk, token.pk if token else None)
    if applied:
        admit_request(applied, len(recording.data))
    route = router.resolve(settings.TRANSCRIPTION_MODEL, user=user)
    call = ProviderCall(purpose="dictation")
    try:
        with lend_thread_or_refuse():
            return _transcribe(route, recording, call)
    finally:
        if call.started_at:
            ModelCall.objects.record(
                call, route, caller=caller, usage=call.usage, finish=call.finish
            )
            charge_call(applied, call, route)
