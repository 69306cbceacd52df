"""API views of the links with which a user shares conversations."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import Group
from django.core.exceptions import ValidationError
from django.db.models import F, QuerySet
from django.shortcuts import get_object_or_404
from django.urls import reverse
from rest_framework import generics, serializers
from rest_framework.request import Request
from rest_framework.response import Response

from conversations.access.sharing import LONGEST, SHOWN, create_link
from conversations.api import schema
from conversations.api.filters import limit_by
from conversations.api.keyset_pages import list_queryset, search
from conversations.api.pagination import OldestFirst, PageSerializer
from conversations.api.views import ApiView
from conversations.models import Conversation, ShareLink
from conversations.models.share_link import Audience
from conversations.requests.fields import (
    StrictBooleanField,
    StrictSerializer,
    TextField,
)
from llm.db.encrypted_field import SecretUnavailable


class ShareSerializer(serializers.ModelSerializer[Any]):
    url = serializers.SerializerMethodField(
        help_text="The link's address; null if it cannot be decrypted any more."
    )

    class Meta:
        model = ShareLink
        fields = [
            *("id", "conversation", "url", "audience", "group", "kind", *SHOWN),
            *("views", "created_at", "expires_at"),
        ]
        read_only_fields = fields

    def get_url(self, row: ShareLink) -> str | None:
        try:
            path = reverse("shared", args=[row.token.reveal()])
        except SecretUnavailable:
            return None
        return str(self.context["request"].build_absolute_uri(path))


class SharesSerializer(PageSerializer):
    results = ShareSerializer(many=True)
    data = ShareSerializer(many=True, help_text="The same as `results`.")  # type: ignore[assignment]


class NewShareSerializer(StrictSerializer):
    """The fields of `create_link`, which checks them."""

    audience = serializers.ChoiceField(choices=Audience.choices)
    group = serializers.IntegerField(
        required=False, allow_null=True, help_text="Id of one of the user's groups."
    )
    kind = serializers.ChoiceField(
        choices=ShareLink.Kind.choices, default=ShareLink.Kind.SNAPSHOT
    )
    turn = TextField(
        required=False, max_length=64, help_text="The last one; else the newest."
    )
    days = serializers.IntegerField(
        required=False, allow_null=True, min_value=1, max_value=LONGEST
    )
    shows_owner = StrictBooleanField(default=False)
    shows_reasoning = StrictBooleanField(default=False)
    shows_arguments = StrictBooleanField(default=False)
    shows_results = StrictBooleanField(default=False)

    def validate_group(self, number: int | None) -> Group | None:
        if number is None:
            return None
        groups = Group.objects.filter(user=self.context["user"].pk)
        found = groups.filter(pk=number).first() if 0 < number < 2**31 else None
        if found is None:
            raise serializers.ValidationError("This is none of your groups.")
        return found


class ConversationSharesView(ApiView):
    serializer_class = SharesSerializer

    @schema.describe(
        parameters=schema.list_parameters("audience", "kind"),
        responses={200: SharesSerializer, **schema.errors(404)},
    )
    def get(self, request: Request, pk: str) -> Response:
        """The conversation's links that are not revoked, newest first."""
        rows = _links(request).filter(conversation=self._conversation(pk))
        context = self.get_serializer_context()
        return list_queryset(
            request,
            rows,
            ShareSerializer,
            by=F("created_at"),
            falling=True,
            searched=["id", "audience"],
            filtered={"audience": "audience", "kind": "kind"},
            context=context,
        )

    @schema.describe(
        request=NewShareSerializer,
        responses={201: ShareSerializer, **schema.errors(404, *schema.BODY)},
    )
    def post(self, request: Request, pk: str) -> Response:
        """Share the conversation by a link."""
        context = self.get_serializer_context()
        row = self._conversation(pk)
        new = NewShareSerializer(data=request.data, context=context)
        new.is_valid(raise_exception=True)
        try:
            link = create_link(row, request.user, new.validated_data)
        except ValidationError as exc:
            detail = exc.message_dict if hasattr(exc, "error_dict") else exc.messages
            raise serializers.ValidationError(detail) from exc
        return Response(ShareSerializer(link, context=context).data, status=201)

    def _conversation(self, pk: str) -> Conversation:
        return get_object_or_404(Conversation.objects.of(self.request.user), pk=pk)


class SharesView(ApiView, generics.ListAPIView[ShareLink]):
    serializer_class = ShareSerializer
    pagination_class = OldestFirst

    def get_queryset(self) -> QuerySet[ShareLink]:
        kinds = {"audience": Audience, "kind": ShareLink.Kind}
        rows = limit_by(_links(self.request), self.request, **kinds)
        return search(rows, self.request, ["id", "audience"])

    @schema.describe(
        parameters=[
            schema.choice_of("audience", Audience),
            schema.choice_of("kind", ShareLink.Kind),
            schema.QUERY,
        ],
        responses={200: ShareSerializer, **schema.errors(400)},
    )
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """All links of the user that are not revoked, oldest first."""
        return super().get(request, *args, **kwargs)


class ShareView(ApiView):
    serializer_class = ShareSerializer

    @schema.describe(responses={200: ShareSerializer, **schema.errors(404)})
    def get(self, request: Request, pk: str) -> Response:
        """One link."""
        row = get_object_or_404(_links(request), pk=pk)
        return Response(self.get_serializer(row).data)

    @schema.describe(responses={204: None, **schema.errors(404)})
    def delete(self, request: Request, pk: str) -> Response:
        """Revoke a link; it stops working at once."""
        get_object_or_404(_links(request), pk=pk).revoke()
        return Response(status=204)


def _links(request: Request) -> QuerySet[ShareLink]:
    return ShareLink.objects.of(request.user)
