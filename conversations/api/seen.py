"""API view that notes that a user has looked at a conversation."""

from __future__ import annotations

from django.http import Http404
from rest_framework import status
from rest_framework.request import Request
from rest_framework.response import Response

from conversations.api import schema
from conversations.api.views import ApiView
from conversations.models import Conversation, LastSeen


class SeenView(ApiView):
    limits_conversations = True
    serializer_class = None

    @schema.describe(request=None, responses={204: None, **schema.errors(404)})
    def post(self, request: Request, pk: str) -> Response:
        """Note that the user has seen the conversation as it is now."""
        found = Conversation.objects.find_visible(request.user, pk)
        if found is None:
            raise Http404
        LastSeen.objects.note(request.user, found)
        return Response(status=status.HTTP_204_NO_CONTENT)
