"""API views of branches: the branch that a user looks at, copies, deletion."""

from __future__ import annotations

from django.http import Http404
from django.shortcuts import get_object_or_404
from rest_framework import status
from rest_framework.request import Request
from rest_framework.response import Response

from conversations import engine
from conversations.access import overload
from conversations.api import schema
from conversations.api.authentication import token_of
from conversations.api.serializers import ConversationSerializer, TurnSerializer
from conversations.api.views import ApiView
from conversations.engine.message_consequences import CannotContinue
from conversations.input.checks import InputError
from conversations.models import (
    BranchChoice,
    Conversation,
    KeyReused,
    MessageRemoved,
    Turn,
)
from conversations.requests import branches
from conversations.requests.errors import (
    BranchConflict,
    IdempotencyKeyConflict,
    InvalidInput,
    MessageRemovedConflict,
    NothingToContinueConflict,
)
from conversations.requests.fields import StrictSerializer, TextField
from conversations.requests.turn_request import check_idempotency_key


class BranchSerializer(StrictSerializer):
    turn = TextField(
        max_length=64,
        allow_null=True,
        help_text="The last turn of the branch; null if there are no turns.",
    )


class BranchView(ApiView):
    """The branch of a conversation that the user, its owner or a participant, looks
    at. Each person has a choice of their own."""

    limits_conversations = True
    serializer_class = BranchSerializer

    @schema.describe(responses={200: BranchSerializer, **schema.errors(404)})
    def get(self, request: Request, pk: str) -> Response:
        """The last turn of the branch that pages show, and that a message without
        `parent` continues."""
        row = _conversation(request, pk)
        leaf = BranchChoice.objects.shown_leaf(row.pk, request.user.pk or 0)
        return Response({"turn": leaf})

    @schema.describe(
        request=BranchSerializer,
        responses={200: BranchSerializer, **schema.errors(404, *schema.BODY)},
    )
    def put(self, request: Request, pk: str) -> Response:
        """Look at the branch that goes through a turn. Returns its last turn."""
        row = _conversation(request, pk)
        serializer = BranchSerializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        turn_id = serializer.validated_data["turn"] or ""
        end = branches.end_of_branch(row, turn_id)
        if end is None:
            problem = "there is no such turn in this conversation."
            raise InvalidInput(InputError("turn", problem, code="unknown_turn"))
        BranchChoice.objects.choose(row.pk, request.user.pk or 0, turn_id)
        engine.announce_branches(row.pk)
        return Response({"turn": end.pk})


class ForkView(ApiView):
    serializer_class = ConversationSerializer

    @schema.describe(
        request=None,
        parameters=[schema.KEY],
        responses={201: ConversationSerializer, **schema.errors(400, 404, 409)},
    )
    def post(self, request: Request, pk: str) -> Response:
        """Copy the conversation up to this turn into a new conversation."""
        found = _turn(request, pk)
        key = request.headers.get("Idempotency-Key")
        try:
            copy = branches.fork_once(
                request.user, found, "" if key is None else check_idempotency_key(key)
            )
        except KeyReused as exc:
            raise IdempotencyKeyConflict from exc
        except MessageRemoved as exc:
            raise MessageRemovedConflict from exc
        shown = ConversationSerializer(
            copy.conversation, context=self.get_serializer_context()
        )
        return Response(shown.data, status=status.HTTP_201_CREATED)


class DeletedBranchView(ApiView):
    limits_conversations = True
    serializer_class = None

    @schema.describe(responses={204: None, **schema.errors(404)})
    def delete(self, request: Request, pk: str) -> Response:
        """Delete the turn and all that follow it. Until they are erased, the turn can
        be restored."""
        branches.delete_branch(_turn(request, pk))
        return Response(status=status.HTTP_204_NO_CONTENT)


class RestoreBranchView(ApiView):
    limits_conversations = True
    serializer_class = TurnSerializer

    @schema.describe(
        request=None, responses={200: TurnSerializer, **schema.errors(404, 409)}
    )
    def post(self, request: Request, pk: str) -> Response:
        """Undo the deletion of a turn and of those that follow it."""
        found = branches.find_deleted_branch(request.user, pk)
        if found is None:
            raise Http404
        if not branches.restore_branch(found):
            raise BranchConflict
        # Another participant may have written it.
        return Response(self.get_serializer(_turn(request, pk)).data)


class RestoreConversationView(ApiView):
    serializer_class = ConversationSerializer

    @schema.describe(
        request=None, responses={200: ConversationSerializer, **schema.errors(404)}
    )
    def post(self, request: Request, pk: str) -> Response:
        """Undo the deletion of a conversation, until it is erased."""
        found = branches.find_deleted_conversation(request.user, pk)
        if found is None:
            raise Http404
        found.restore()
        shown = ConversationSerializer(found, context=self.get_serializer_context())
        return Response(shown.data)


class ContinueView(ApiView):
    limits_conversations = True
    serializer_class = TurnSerializer

    @schema.describe(
        summary="Continue an answer that was cut off or bounded",
        request=None,
        responses={202: TurnSerializer, **schema.errors(404, 409)},
    )
    def post(self, request: Request, pk: str) -> Response:
        """Go on past the bound that the turn's message has reached (`halted_by` is
        `max_turns` or `max_cost`), or with an answer that was cut off. The turn that
        goes on: beside the cut one, with the whole text, where the model continues a
        text that it is given; else behind it, with the rest."""
        overload.check_room()
        rows = Turn.objects.writable_by(request.user)
        found = get_object_or_404(rows.select_related("conversation__owner"), pk=pk)
        try:
            turn = branches.continue_turn(found, request.user, token_of(request))
        except CannotContinue as exc:
            raise NothingToContinueConflict from exc
        # Another participant may have continued it: then it is their turn.
        serializer = TurnSerializer(turn, context=self.get_serializer_context())
        return Response(serializer.data, status=status.HTTP_202_ACCEPTED)


def _conversation(request: Request, pk: str) -> Conversation:
    found = Conversation.objects.find_visible(request.user, pk)
    if found is None:
        raise Http404
    return found


def _turn(request: Request, pk: str) -> Turn:
    rows = Turn.objects.of(request.user).select_related("conversation__owner")
    return get_object_or_404(rows, pk=pk)
