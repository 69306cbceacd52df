"""API views of folders, tags, and changes of many conversations at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.core.files.base import ContentFile, File
from django.db import IntegrityError, transaction
from django.db.models import QuerySet
from django.db.models.functions import Lower
from django.http import HttpResponse
from django.shortcuts import get_object_or_404
from rest_framework import generics, serializers, status
from rest_framework.parsers import MultiPartParser
from rest_framework.request import Request
from rest_framework.response import Response

from conversations.api import schema
from conversations.api.files import FileRefused, LinkedFileView, NoFiles
from conversations.api.keyset_pages import list_queryset
from conversations.api.pagination import PageSerializer
from conversations.api.views import ApiView, JSONParser
from conversations.forms.folder_uploads import add_folder_file
from conversations.http.file_download import download_folder_file
from conversations.models import Folder, FolderFile, Tag
from conversations.models.folder import MAX_FOLDER_TEXT, MAX_FOLDERS
from conversations.requests.bulk import BulkResultSerializer, BulkSerializer
from conversations.requests.fields import ModelField, StrictSerializer, TextField
from conversations.turns.attachments import UploadRefused


class FolderFileSerializer(StrictSerializer, serializers.ModelSerializer[Any]):
    name = TextField(max_length=255)
    text = TextField(max_length=MAX_FOLDER_TEXT, write_only=True, trim_whitespace=False)

    class Meta:
        model = FolderFile
        fields = ["id", "name", "text", "content_type", "size", "created_at"]
        read_only_fields = ["id", "content_type", "size", "created_at"]


class FolderSerializer(StrictSerializer, serializers.ModelSerializer[Any]):
    name = TextField(max_length=100)
    instructions = TextField(
        required=False,
        allow_blank=True,
        trim_whitespace=False,
        help_text="System prompt of its conversations that have none of their own.",
    )
    model = ModelField(source="language_model", required=False, allow_null=True)
    files = FolderFileSerializer(many=True, read_only=True)

    class Meta:
        model = Folder
        fields = ["id", "name", "instructions", "model", "files", "created_at"]
        read_only_fields = ["id", "created_at"]

    def validate_name(self, name: str) -> str:
        same = Folder.objects.of(self.context["user"]).filter(name=name)
        if same.exclude(pk=getattr(self.instance, "pk", None)).exists():
            problem = "You have a folder of this name already."
            raise serializers.ValidationError(problem)
        return name

    def create(self, validated_data: dict[str, Any]) -> Any:
        user = self.context["user"]
        if Folder.objects.of(user).count() >= MAX_FOLDERS:
            problem = f"You can have {MAX_FOLDERS} folders; delete one."
            raise serializers.ValidationError({"name": problem})
        return self._save_once(super().create, {**validated_data, "owner": user})

    def _save_once(self, save: Callable[..., Any], *values: Any) -> Any:
        """Another tab may take the name after it was checked."""
        try:
            with transaction.atomic():
                return save(*values)
        except IntegrityError as exc:
            problem = "You have a folder of this name already."
            raise serializers.ValidationError({"name": problem}) from exc

    def update(self, instance: Any, validated_data: dict[str, Any]) -> Any:
        return self._save_once(super().update, instance, validated_data)


class FoldersSerializer(PageSerializer):
    results = FolderSerializer(many=True)
    data = FolderSerializer(many=True, help_text="The same as `results`.")  # type: ignore[assignment]


class FoldersView(ApiView):
    serializer_class = FolderSerializer

    @schema.describe(
        operation_id="folders_list",
        parameters=schema.list_parameters(),
        responses={200: FoldersSerializer, **schema.errors()},
    )
    def get(self, request: Request) -> Response:
        """The user's folders, by name."""
        return list_queryset(
            request,
            _folders(request),
            FolderSerializer,
            by=Lower("name"),
            searched=["name", "instructions"],
        )

    @schema.describe(
        request=FolderSerializer,
        responses={201: FolderSerializer, **schema.errors(404, *schema.BODY)},
    )
    def post(self, request: Request) -> Response:
        """Create a folder."""
        serializer = self.get_serializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        serializer.save()
        return Response(serializer.data, status=status.HTTP_201_CREATED)


@schema.describe_view(
    get={
        "summary": "One folder",
        "responses": {200: FolderSerializer, **schema.errors(404)},
    },
    patch={
        "summary": "Change a folder",
        "responses": {200: FolderSerializer, **schema.errors(404, *schema.BODY)},
    },
    delete={
        "summary": "Delete a folder; its conversations stay",
        "responses": {204: None, **schema.errors(404)},
    },
)
class FolderView(ApiView, generics.RetrieveUpdateDestroyAPIView[Folder]):
    """A folder; its conversations stay when it is deleted."""

    serializer_class = FolderSerializer
    http_method_names = ["get", "patch", "delete", "head", "options"]

    def get_queryset(self) -> QuerySet[Folder]:
        rows: QuerySet[Folder] = _folders(self.request)
        return rows


class FolderFilesView(ApiView):
    parser_classes = [JSONParser, MultiPartParser]
    serializer_class = FolderFileSerializer

    @schema.describe(
        summary="Add a file to a folder",
        request=FolderFileSerializer,
        responses={201: FolderFileSerializer, **schema.errors(404, *schema.BODY)},
    )
    def post(self, request: Request, pk: int) -> Response:
        """Add a text, or a file of a kind that messages may have, which the folder's
        conversations send with each message. The file comes as `file` of
        multipart/form-data instead of the fields."""
        folder = get_object_or_404(_folders(request), pk=pk)
        try:
            file = add_folder_file(folder, self._sent_file(request))
        except UploadRefused as exc:
            raise FileRefused(exc, _param(request)) from exc
        return Response(FolderFileSerializer(file).data, status=201)

    def _sent_file(self, request: Request) -> File[bytes]:
        if _param(request) == "file":
            file: File[bytes] | None = request.FILES.get("file")
            if file is None:
                raise NoFiles
            return file
        serializer = self.get_serializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        fields = serializer.validated_data
        return ContentFile(fields["text"].encode(), name=fields["name"])


def _param(request: Request) -> str:
    """The field that brings the content."""
    is_form = (request.content_type or "").startswith("multipart/")
    return "file" if is_form else "text"


class FolderFileView(LinkedFileView):
    serializer_class = None

    @schema.describe(
        summary="Download a file of a folder",
        responses={**schema.FILE, **schema.errors(404)},
    )
    def get(self, request: Request, pk: int, file_id: int) -> HttpResponse:
        """The file."""
        return download_folder_file(self._file(pk, file_id), "private, no-cache")

    @schema.describe(responses={204: None, **schema.errors(404)})
    def delete(self, request: Request, pk: int, file_id: int) -> Response:
        """Remove a file."""
        self._file(pk, file_id).delete()
        return Response(status=204)

    def _file(self, pk: int, file_id: int) -> FolderFile:
        folder = get_object_or_404(_folders(self.request), pk=pk)
        return get_object_or_404(FolderFile, folder=folder, pk=file_id)


class _TagNameSerializer(serializers.BaseSerializer[Any]):
    def to_representation(self, instance: Tag) -> str:
        return instance.name


class TagsSerializer(PageSerializer):
    results = serializers.ListField(child=serializers.CharField())
    data = serializers.ListField(  # type: ignore[assignment]
        child=serializers.CharField(), help_text="The same as `results`."
    )


class TagsView(ApiView):
    serializer_class = TagsSerializer

    @schema.describe(
        parameters=schema.list_parameters(),
        responses={200: TagsSerializer, **schema.errors()},
    )
    def get(self, request: Request) -> Response:
        """The names of the user's tags."""
        rows = Tag.objects.of(request.user)
        return list_queryset(
            request, rows, _TagNameSerializer, by=Lower("name"), searched=["name"]
        )


class BulkView(ApiView):
    serializer_class = BulkSerializer

    @schema.describe(
        request=BulkSerializer,
        responses={200: BulkResultSerializer, **schema.errors(*schema.BODY)},
    )
    def post(self, request: Request) -> Response:
        """Change many conversations at once."""
        context = self.get_serializer_context()
        serializer = BulkSerializer(data=request.data, context=context)
        serializer.is_valid(raise_exception=True)
        changed = serializer.apply()
        ids = dict.fromkeys(serializer.validated_data["ids"])
        missing = [id for id in ids if id not in set(changed)]
        return Response({"changed": changed, "missing": missing})


def _folders(request: Request) -> Any:
    rows = Folder.objects.of(request.user).select_related("language_model__provider")
    return rows.prefetch_related("files")
