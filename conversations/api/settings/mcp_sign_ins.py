"""API views of a user's own sign-ins at MCP servers."""

from __future__ import annotations

from typing import Any

from django.db.models import F
from django.http import Http404
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from conversations.access.mcp_sign_ins import sign_out_user
from conversations.api import schema
from conversations.api.keyset_pages import list_queryset
from conversations.api.pagination import PageSerializer
from conversations.api.views import ApiView
from tools.errors import ToolError
from tools.models import McpUserSignIn


class SignInSerializer(serializers.ModelSerializer[Any]):
    """A server at which the user is signed in."""

    server = serializers.CharField(source="server.name", read_only=True)
    title = serializers.CharField(source="server", read_only=True)
    is_usable = serializers.BooleanField(
        read_only=True, help_text="False: it has ended; the next call asks again."
    )

    class Meta:
        model = McpUserSignIn
        fields = [
            "id",
            "server",
            "title",
            "signed_in_at",
            "signed_in_until",
            "is_usable",
        ]


class SignInsSerializer(PageSerializer):
    results = SignInSerializer(many=True)
    data = SignInSerializer(many=True, help_text="The same as `results`.")  # type: ignore[assignment]


class SignedOutSerializer(serializers.Serializer[Any]):
    is_revoked = serializers.BooleanField(
        help_text="Whether the authorization server has revoked the tokens; Parley"
        " has deleted them in any case."
    )


class SignInsView(ApiView):
    serializer_class = SignInsSerializer

    @schema.describe(
        parameters=schema.list_parameters("server"),
        responses={200: SignInsSerializer, **schema.errors()},
    )
    def get(self, request: Request) -> Response:
        """The MCP servers at which this user has signed in, by name."""
        rows = McpUserSignIn.objects.filter(user=request.user.pk)
        return list_queryset(
            request,
            rows.select_related("server"),
            SignInSerializer,
            by=F("server__name"),
            searched=["server__label", "server__name"],
            filtered={"server": "server__name"},
        )


class OwnSignInView(ApiView):
    serializer_class = SignedOutSerializer

    @schema.describe(
        summary="Sign out of a server",
        responses={200: SignedOutSerializer, **schema.errors(404)},
    )
    def delete(self, request: Request, pk: int) -> Response:
        """Delete the tokens and revoke them at the server."""
        row = McpUserSignIn.objects.filter(user=request.user.pk, pk=pk).first()
        if row is None:
            raise Http404
        try:
            is_revoked = sign_out_user(row, request.user)
        except ToolError:  # they are deleted here all the same
            is_revoked = False
        return Response({"is_revoked": is_revoked})
