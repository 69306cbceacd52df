"""API views of what users set for themselves: settings, prompts, deletion."""

from __future__ import annotations

from typing import Any

from django.db.models import F
from django.shortcuts import get_object_or_404
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from conversations.access.account_deletion import LastSuperuser, close_account
from conversations.api import schema
from conversations.api.account import BrowserView
from conversations.api.keyset_pages import list_queryset
from conversations.api.pagination import PageSerializer
from conversations.api.views import ApiView
from conversations.forms.deletion_form import DeletionForm
from conversations.forms.settings_forms import SavedPromptForm
from conversations.models.keyboard_shortcuts import validate_shortcuts
from conversations.models.saved_prompt import SavedPrompt
from conversations.models.user_settings import UserSettings
from conversations.requests.fields import (
    ModelField,
    StrictBooleanField,
    StrictSerializer,
    TextField,
)

# Settings


class UserSettingsSerializer(StrictSerializer, serializers.ModelSerializer[Any]):
    default_model = ModelField(required=False, allow_null=True)
    custom_instructions = TextField(
        max_length=4000, required=False, allow_blank=True, trim_whitespace=False
    )
    favourite_models = serializers.ListField(
        child=TextField(max_length=400),
        max_length=100,
        required=False,
        help_text="Names of models that stand first in the list of models.",
    )
    shortcuts = serializers.DictField(
        child=TextField(allow_blank=True, max_length=40),
        required=False,
        help_text="Keys by action, where they are not the usual ones.",
    )

    notify_title = StrictBooleanField(required=False)
    notify_browser = StrictBooleanField(required=False)
    shortcuts_enabled = StrictBooleanField(required=False)
    memory_enabled = StrictBooleanField(required=False)

    class Meta:
        model = UserSettings
        fields = [
            "theme",
            "language",
            "font_size",
            "default_model",
            "favourite_models",
            "notify_title",
            "notify_browser",
            "email_after_minutes",
            "shortcuts_enabled",
            "shortcuts",
            "memory_enabled",
            "custom_instructions",
        ]

    def validate_favourite_models(self, value: list[str]) -> list[str]:
        return list(dict.fromkeys(value))

    def validate_shortcuts(self, value: dict[str, str]) -> dict[str, str]:
        validate_shortcuts(value)
        return value

    def update(self, instance: Any, validated_data: dict[str, Any]) -> Any:
        UserSettings.objects.change(instance.user_id, **validated_data)
        return UserSettings.objects.for_user(instance.user_id)


class SettingsView(BrowserView):
    serializer_class = UserSettingsSerializer

    @schema.describe(responses={200: UserSettingsSerializer, **schema.errors()})
    def get(self, request: Request) -> Response:
        """The user's settings."""
        return Response(self.get_serializer(self._own_row()).data)

    @schema.describe(
        request=UserSettingsSerializer(partial=True),
        responses={200: UserSettingsSerializer, **schema.errors(*schema.BODY)},
    )
    def patch(self, request: Request) -> Response:
        """Change some of the user's settings."""
        serializer = self.get_serializer(
            self._own_row(), data=request.data, partial=True
        )
        serializer.is_valid(raise_exception=True)
        serializer.save()
        return Response(serializer.data)

    def _own_row(self) -> UserSettings:
        return UserSettings.objects.for_user(self.request.user.pk or 0)


# Saved prompts


class SavedPromptSerializer(StrictSerializer, serializers.ModelSerializer[Any]):
    name = TextField(max_length=40)
    title = TextField(max_length=100, required=False, allow_blank=True)
    text = TextField(max_length=20_000, trim_whitespace=False)
    variables = serializers.ListField(child=serializers.CharField(), read_only=True)
    group = serializers.CharField(
        source="group.name",
        read_only=True,
        allow_null=True,
        default=None,
        help_text="The group whose prompt it is; null for your own.",
    )

    class Meta:
        model = SavedPrompt
        fields = ["id", "name", "title", "text", "variables", "group"]

    def save(self, **_: Any) -> SavedPrompt:
        """Checked by the form of the page."""
        assert isinstance(self.instance, SavedPrompt)
        row = self.instance
        values = {n: getattr(row, n) for n in ("name", "title", "text")}
        form = SavedPromptForm({**values, **self.validated_data}, instance=row)
        if form.is_valid() and (saved := form.save_once()):
            return saved
        raise serializers.ValidationError(
            {
                "name" if name == "__all__" else name: [e["message"] for e in found]
                for name, found in form.errors.get_json_data().items()
            }
        )


class SavedPromptsSerializer(PageSerializer):
    results = SavedPromptSerializer(many=True)
    data = SavedPromptSerializer(many=True, help_text="The same as `results`.")  # type: ignore[assignment]


class PromptsView(ApiView):
    serializer_class = SavedPromptsSerializer

    @schema.describe(
        parameters=schema.list_parameters("group"),
        responses={200: SavedPromptsSerializer, **schema.errors()},
    )
    def get(self, request: Request) -> Response:
        """The user's saved prompts, and those of the user's groups."""
        rows = SavedPrompt.objects.available_to(request.user)
        return list_queryset(
            request,
            rows,
            SavedPromptSerializer,
            by=F("name"),
            searched=["name", "title", "text"],
            filtered={"group": "group__name"},
        )

    @schema.describe(
        request=SavedPromptSerializer,
        responses={201: SavedPromptSerializer, **schema.errors(*schema.BODY)},
    )
    def post(self, request: Request) -> Response:
        """Save a prompt."""
        row = SavedPrompt(owner_id=request.user.pk)
        return _saved(SavedPromptSerializer(row, data=request.data), status=201)


class PromptView(ApiView):
    serializer_class = SavedPromptSerializer

    @schema.describe(
        request=SavedPromptSerializer(partial=True),
        responses={200: SavedPromptSerializer, **schema.errors(404, *schema.BODY)},
    )
    def patch(self, request: Request, pk: int) -> Response:
        """Change a prompt of one's own."""
        row = get_object_or_404(SavedPrompt.objects.of(request.user), pk=pk)
        return _saved(SavedPromptSerializer(row, data=request.data, partial=True))

    @schema.describe(responses={204: None, **schema.errors(404)})
    def delete(self, request: Request, pk: int) -> Response:
        """Delete a prompt of one's own."""
        get_object_or_404(SavedPrompt.objects.of(request.user), pk=pk).delete()
        return Response(status=204)


def _saved(serializer: SavedPromptSerializer, status: int = 200) -> Response:
    serializer.is_valid(raise_exception=True)
    row = serializer.save()
    return Response(SavedPromptSerializer(row).data, status=status)


# Deletion


class DeletionSerializer(StrictSerializer):
    password = TextField(
        trim_whitespace=False,
        max_length=4096,
        write_only=True,
        help_text="The user name, for accounts without a password.",
    )


class AccountDeletionView(BrowserView):
    serializer_class = DeletionSerializer

    @schema.describe(
        request=DeletionSerializer,
        responses={204: None, **schema.errors(*schema.BODY)},
    )
    def post(self, request: Request) -> Response:
        """Delete the user's account. It ends all sessions and access tokens."""
        serializer = DeletionSerializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        form = DeletionForm(serializer.validated_data, request=request)
        if not form.is_valid():
            raise serializers.ValidationError(
                {n: [str(e) for e in found] for n, found in form.errors.items()}
            )
        try:
            close_account(request.user)
        except LastSuperuser as exc:
            raise serializers.ValidationError(str(exc.message)) from exc
        request.session.flush()
        return Response(status=204)
