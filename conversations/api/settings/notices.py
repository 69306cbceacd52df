"""API views of announcements and of the terms of use."""

from __future__ import annotations

from typing import Any

from django.http import Http404
from rest_framework import serializers
from rest_framework.permissions import IsAuthenticated
from rest_framework.request import Request
from rest_framework.response import Response

from conversations.access.policy import announcements, terms
from conversations.api import schema
from conversations.api.authentication import BrowserPermission
from conversations.api.pagination import PageSerializer, list_rows
from conversations.api.views import ApiView
from conversations.models import Announcement, TermsAcceptance, TermsVersion
from conversations.requests.errors import OutdatedTermsConflict
from conversations.requests.fields import StrictSerializer


class AnnouncementSerializer(serializers.Serializer[Any]):
    id = serializers.IntegerField()
    text = serializers.CharField(help_text="Markdown.")
    level = serializers.ChoiceField(choices=Announcement.Level.values)
    starts_at = serializers.DateTimeField()
    ends_at = serializers.DateTimeField(allow_null=True)
    dismissible = serializers.BooleanField()


class AnnouncementsSerializer(PageSerializer):
    results = AnnouncementSerializer(many=True)
    data = AnnouncementSerializer(many=True, help_text="The same as `results`.")  # type: ignore[assignment]


class AnnouncementsView(ApiView):
    limits_conversations = True
    serializer_class = AnnouncementsSerializer

    @schema.describe(
        parameters=schema.list_parameters("level"),
        responses={200: AnnouncementsSerializer, **schema.errors()},
    )
    def get(self, request: Request) -> Response:
        """What staff announce to the user now, without what the user has dismissed."""
        shown = AnnouncementSerializer(
            announcements.shown_to(request.user), many=True
        ).data
        return list_rows(request, shown, searched=["text"], filtered=["level"])


class DismissView(ApiView):
    permission_classes = [IsAuthenticated, BrowserPermission]

    @schema.describe(request=None, responses={204: None, **schema.errors(404)})
    def post(self, request: Request, pk: int) -> Response:
        """Dismiss an announcement that may be dismissed."""
        if not announcements.dismiss(request.user, pk):
            raise Http404
        return Response(status=204)


class TermsSerializer(serializers.Serializer[Any]):
    version = serializers.IntegerField()
    text = serializers.CharField(help_text="Markdown.")
    published_at = serializers.DateTimeField()
    accepted_at = serializers.DateTimeField(
        allow_null=True, help_text="When the user accepted this version."
    )


class AcceptanceSerializer(StrictSerializer):
    version = serializers.IntegerField(help_text="The version that was shown.")


class TermsView(ApiView):
    """The newest terms of use, for browser sessions."""

    limits_conversations = True
    serializer_class = TermsSerializer
    permission_classes = [IsAuthenticated, BrowserPermission]

    @schema.describe(responses={200: TermsSerializer, **schema.errors(404)})
    def get(self, request: Request) -> Response:
        """The newest terms, and when the user accepted them."""
        return Response(_describe(_newest(), request.user))

    @schema.describe(
        request=AcceptanceSerializer,
        responses={200: TermsSerializer, **schema.errors(404, 409, *schema.BODY)},
    )
    def post(self, request: Request) -> Response:
        """Accept the newest terms."""
        serializer = AcceptanceSerializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        newest = _newest()
        if serializer.validated_data["version"] != newest.number:
            raise OutdatedTermsConflict
        terms.accept(newest, request.user, request.session)
        return Response(_describe(newest, request.user))


def _newest() -> TermsVersion:
    newest = TermsVersion.objects.newest()
    if newest is None:
        raise Http404
    return newest


def _describe(newest: TermsVersion, user: Any) -> dict[str, Any]:
    own = TermsAcceptance.objects.filter(user=user, terms=newest).first()
    row = {
        "version": newest.number,
        "text": newest.text,
        "published_at": newest.published_at,
        "accepted_at": own and own.accepted_at,
    }
    return dict(TermsSerializer(row).data)
