"""API view that writes down what a person says."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from rest_framework import serializers
from rest_framework.parsers import MultiPartParser
from rest_framework.request import Request
from rest_framework.response import Response

from conversations.access import overload
from conversations.api import schema
from conversations.api.authentication import token_of
from conversations.api.errors import PayloadTooLarge, request_id
from conversations.api.files import NoFiles
from conversations.api.views import ApiView
from conversations.requests.dictation import dictate, read_recording
from llm.pricing.caller import Caller

_MULTIPART_OVERHEAD = 100_000  # bytes of a request in addition to its file


class DictationSerializer(serializers.Serializer[Any]):
    text = serializers.CharField(help_text="Empty if nothing was said.")


class DictationView(ApiView):
    limits_conversations = True
    parser_classes = [MultiPartParser]
    serializer_class = DictationSerializer

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Refuse a request by its Content-Length before reading it."""
        most = settings.DICTATION_MAX_SIZE + _MULTIPART_OVERHEAD
        if int(request.META.get("CONTENT_LENGTH") or 0) > most:
            raise PayloadTooLarge(f"A request may be at most {most} bytes long.")
        super().initial(request, *args, **kwargs)

    @schema.describe(
        summary="Write down what a person says",
        request=schema.UPLOAD,
        responses={200: DictationSerializer, **schema.errors(404, 429, *schema.BODY)},
    )
    def post(self, request: Request) -> Response:
        """The text of a recording (`file`: WebM, Ogg, MP4, MP3, WAV or FLAC), by the
        model that staff name for it. Nothing is kept of the recording."""
        overload.check_room()
        if (file := request.FILES.get("file")) is None:
            raise NoFiles
        recording = read_recording(file.read(settings.DICTATION_MAX_SIZE + 1))
        token = token_of(request)
        caller = Caller(
            user_id=request.user.pk,
            token_id=token.pk if token else None,
            token_label=token.label if token else "",
            request_id=request_id(request),
        )
        text = dictate(request.user, recording, token, caller=caller)
        return Response({"text": text})
