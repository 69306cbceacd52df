"""API views that export and import conversations."""

from __future__ import annotations

from typing import Any

from django.http import Http404, HttpResponseBase
from django.shortcuts import get_object_or_404
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers, status
from rest_framework.exceptions import APIException
from rest_framework.parsers import MultiPartParser
from rest_framework.request import Request
from rest_framework.response import Response

from conversations.access.reauthentication import check_proof
from conversations.api import schema
from conversations.api.authentication import token_of
from conversations.api.files import NoFiles
from conversations.api.keyset_pages import list_queryset
from conversations.api.pagination import PageSerializer
from conversations.api.views import ApiView
from conversations.audit.record import record_event
from conversations.http.streamed_download import download
from conversations.input.checks import InputError
from conversations.models import Conversation, ConversationImport
from conversations.requests.errors import InvalidInput
from conversations.transfer import imports as importing
from conversations.transfer.account import load_folder_files, write_account
from conversations.transfer.export import (
    CONTENT_TYPES,
    file_name,
    load,
    write,
    write_zip,
)

_FORMAT = OpenApiParameter("format", str, enum=list(CONTENT_TYPES), default="json")


class ImportRefusedError(APIException):
    status_code = status.HTTP_400_BAD_REQUEST
    default_code = "import_refused"
    param = "file"


class ReasonSerializer(serializers.Serializer[Any]):
    title = serializers.CharField()
    reason = serializers.CharField()


class ConversationImportSerializer(serializers.ModelSerializer[Any]):
    reasons = ReasonSerializer(many=True, read_only=True)

    class Meta:
        model = ConversationImport
        fields = [
            "id",
            "name",
            "size",
            "format",
            "state",
            "imported",
            "repeated",
            "skipped",
            "reasons",
            "error",
            "created_at",
            "finished_at",
        ]
        read_only_fields = fields


class ImportsSerializer(PageSerializer):
    results = ConversationImportSerializer(many=True)
    data = ConversationImportSerializer(many=True, help_text="The same as `results`.")  # type: ignore[assignment]


class ExportView(ApiView):
    limits_conversations = True
    serializer_class = None

    @schema.describe(
        parameters=[_FORMAT],
        responses={
            (200, "application/json"): OpenApiTypes.OBJECT,
            (200, "text/markdown"): OpenApiTypes.STR,
            **schema.errors(400, 404),
        },
    )
    def get(self, request: Request, pk: str) -> HttpResponseBase:
        """The conversation as a file: JSON, which can be imported, or Markdown."""
        form = _form(request)
        row = load(Conversation.objects.of(request.user).kept().filter(pk=pk))
        if row is None:
            raise Http404
        record_event("data.export", target=row, subject=request.user)
        return download(
            request,
            write(row, form),
            CONTENT_TYPES[form],
            file_name(row, form),
        )


class ExportAllView(ApiView):
    serializer_class = None

    @schema.describe(
        operation_id="conversations_export_all",
        parameters=[_FORMAT],
        responses={**schema.FILE, **schema.errors(400)},
    )
    def get(self, request: Request) -> HttpResponseBase:
        """All conversations of the user in one ZIP archive.

        Its `account.json` has the memories, prompts, folders, ratings, links and
        settings; `folder-files/` has the files of the folders.
        """
        if token_of(request) is None:
            check_proof(request)
        rows = Conversation.objects.of(request.user).kept()
        form = _form(request)
        details = {"format": form, "conversations": rows.count()}
        record_event("data.export", subject=request.user, details=details)
        return download(
            request,
            write_zip(
                rows, form, write_account(request.user), load_folder_files(request.user)
            ),
            "application/zip",
            "parley-conversations.zip",
        )


class ImportsView(ApiView):
    parser_classes = [MultiPartParser]
    serializer_class = ConversationImportSerializer

    @schema.describe(
        operation_id="imports_list",
        parameters=schema.list_parameters("state"),
        responses={200: ImportsSerializer, **schema.errors()},
    )
    def get(self, request: Request) -> Response:
        """The user's imports, newest first."""
        return list_queryset(
            request,
            ConversationImport.objects.of(request.user),
            ConversationImportSerializer,
            falling=True,
            searched=["name"],
            filtered={"state": "state"},
        )

    @schema.describe(
        request=schema.UPLOAD,
        responses={202: ConversationImportSerializer, **schema.errors(*schema.BODY)},
    )
    def post(self, request: Request) -> Response:
        """Begin to import an export of ChatGPT, Claude, Open WebUI, LibreChat or
        Parley. The import that is returned says how far it is."""
        if (file := request.FILES.get("file")) is None:
            raise NoFiles
        try:
            row = importing.accept(request.user, file)
        except importing.ImportRefused as exc:
            raise ImportRefusedError(str(exc)) from exc
        importing.start(row)
        return Response(
            ConversationImportSerializer(row).data, status=status.HTTP_202_ACCEPTED
        )


class ImportView(ApiView):
    serializer_class = ConversationImportSerializer

    @schema.describe(
        responses={200: ConversationImportSerializer, **schema.errors(404)}
    )
    def get(self, request: Request, pk: int) -> Response:
        """How far an import is, and what it has left out."""
        row = get_object_or_404(ConversationImport.objects.of(request.user), pk=pk)
        return Response(ConversationImportSerializer(row).data)


def _form(request: Request) -> str:
    form = request.query_params.get("format", "json")
    if form not in CONTENT_TYPES:
        names = ", ".join(CONTENT_TYPES)
        raise InvalidInput(InputError("format", f"unknown; use {names}."))
    return form
