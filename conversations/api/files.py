"""API views that upload, download and delete a conversation's files, for its owner."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.contrib.auth.views import redirect_to_login
from django.db.models import Q, QuerySet
from django.http import Http404, HttpResponseBase
from django.shortcuts import get_object_or_404
from django.views.decorators.http import etag
from django.views.defaults import page_not_found
from rest_framework import status
from rest_framework.exceptions import APIException, NotAuthenticated
from rest_framework.parsers import MultiPartParser
from rest_framework.request import Request
from rest_framework.response import Response

from conversations.api import schema
from conversations.api.errors import PayloadTooLarge
from conversations.api.serializers import AttachmentSerializer, AttachmentsSerializer
from conversations.api.views import ApiView
from conversations.audit.record import record_event
from conversations.http.file_download import download
from conversations.models import Attachment, Conversation
from conversations.turns.attachments import (
    UploadRefused,
    is_shown,
    is_used,
    save_attachments,
    validate_files,
)

_MULTIPART_OVERHEAD = 1_000_000  # bytes of a request in addition to its files

#: The browser must ask again, as the user's permission may have been revoked.
_CACHE_CONTROL = "private, no-cache"


class FileRefused(APIException):
    def __init__(self, exc: UploadRefused, param: str = "file") -> None:
        super().__init__(str(exc), exc.code)
        self.status_code = exc.status
        self.param = param


class NoFiles(APIException):
    status_code = status.HTTP_400_BAD_REQUEST
    default_detail = "Send one or more files as multipart/form-data, each named 'file'."
    default_code = "missing"
    param = "file"


class FileInUse(APIException):
    status_code = status.HTTP_409_CONFLICT
    default_detail = "A message uses this file; delete its conversation instead."
    default_code = "file_in_use"


class AttachmentsView(ApiView):
    limits_conversations = True
    parser_classes = [MultiPartParser]
    serializer_class = AttachmentsSerializer

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Refuse a request by its Content-Length before reading it."""
        most = (
            settings.MAX_UPLOAD_SIZE * settings.MAX_UPLOAD_COUNT + _MULTIPART_OVERHEAD
        )
        if int(request.META.get("CONTENT_LENGTH") or 0) > most:
            raise PayloadTooLarge(f"A request may be at most {most} bytes long.")
        super().initial(request, *args, **kwargs)

    @schema.describe(
        request=schema.UPLOAD,
        responses={
            201: AttachmentsSerializer,
            **schema.errors(404, *schema.BODY),
        },
    )
    def post(self, request: Request, pk: str) -> Response:
        """Keep files, all of them or none. A message names them by their ids."""
        found = get_object_or_404(Conversation.objects.writable_by(request.user), pk=pk)
        files = [file for _, some in request.FILES.lists() for file in some]
        if not files:
            raise NoFiles
        try:
            rows = save_attachments(
                found, validate_files(request.user.pk, files), request.user
            )
        except UploadRefused as exc:
            raise FileRefused(exc) from exc
        data = AttachmentSerializer(rows, many=True).data
        return Response({"data": data}, status=status.HTTP_201_CREATED)


class LinkedFileView(ApiView):
    """A file to which pages link. A person whom such a link leads to an error gets a
    page that leads on; programs get the error as JSON, as everywhere in the API."""

    def handle_exception(self, exc: Exception) -> Any:
        request: Any = self.request
        if request.method == "GET" and "text/html" in request.headers.get("Accept", ""):
            if isinstance(exc, NotAuthenticated):
                return redirect_to_login(request.get_full_path())
            if isinstance(exc, Http404):
                return page_not_found(request, exc)
        return super().handle_exception(exc)


class AttachmentView(LinkedFileView):
    limits_conversations = True
    serializer_class = None

    @schema.describe(
        summary="Download a file",
        responses={**schema.FILE, 304: None, **schema.errors(404)},
    )
    def get(self, request: Request, pk: str) -> HttpResponseBase:
        """The file. Pictures show in the browser, everything else is downloaded."""
        visible = Conversation.objects.visible_to(request.user)
        row = get_object_or_404(Attachment, conversation__in=visible, pk=pk)
        if not (_attachments(request).filter(pk=pk).exists() or is_shown(row)):
            raise Http404
        tag = f'"{row.pk}"'
        respond: Any = etag(lambda _: tag)(lambda _: download(row, _CACHE_CONTROL))
        response: HttpResponseBase = respond(request)
        return response

    @schema.describe(responses={204: None, **schema.errors(404, 409)})
    def delete(self, request: Request, pk: str) -> Response:
        """Take a file away that no message names yet."""
        row = get_object_or_404(_attachments(request), pk=pk)
        if is_used(row):
            raise FileInUse
        row.delete()
        record_event("content.delete", target=("conversations.attachment", pk))
        return Response(status=status.HTTP_204_NO_CONTENT)


def _attachments(request: Request) -> QuerySet[Attachment]:
    """Files of the user's conversations, and those that the user has sent to others."""
    own = Q(conversation__in=Conversation.objects.of(request.user))
    joined = Conversation.objects.visible_to(request.user)
    sent = Q(uploaded_by=request.user.pk, conversation__in=joined)
    return Attachment.objects.filter(own | sent)
