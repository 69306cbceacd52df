from __future__ import annotations

from typing import Any, Literal

from django.db.models import Prefetch, QuerySet
from django.http import Http404, HttpResponseBase
from django.shortcuts import get_object_or_404
from rest_framework import generics, status
from rest_framework.negotiation import DefaultContentNegotiation
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from conversations import engine
from conversations.api import schema
from conversations.api.authentication import limit_headers, token_of
from conversations.api.errors import (
    REQUEST_ID,
    InvalidInput,
    NothingToContinueConflict,
    request_id,
)
from conversations.api.pagination import NewestFirst, OldestFirst
from conversations.api.parsers import JSONParser
from conversations.api.serializers import (
    ConversationSerializer,
    ModelSerializer,
    ModelsSerializer,
    TurnDetailSerializer,
    TurnRequestSerializer,
    TurnSerializer,
)
from conversations.engine import message_bounds
from conversations.engine.connection_revocation import CREDENTIAL, Credential
from conversations.engine.continuation import continue_message
from conversations.engine.process.malloc_trim import schedule_trim
from conversations.http.sse import TurnStreamResponse
from conversations.models import Conversation, Item, ToolCall, Turn
from conversations.models.access_token import Scope
from conversations.turns.input_checks import InputError
from llm import router
from llm.db.compiled_queries import CompiledQuery


class _OnlyJSON(DefaultContentNegotiation):
    """Always selects JSON, and ignores `Accept` and `?format`, which streams use."""

    def select_renderer(
        self, request: Any, renderers: Any, format_suffix: Any = None
    ) -> Any:
        return renderers[0], renderers[0].media_type


class ApiView(generics.GenericAPIView[Any]):
    parser_classes = [JSONParser]
    renderer_classes = [JSONRenderer]
    content_negotiation_class = _OnlyJSON
    #: A token needs one of these; see `conversations.api.authentication`.
    token_scopes: tuple[str, ...] = (Scope.CHAT,)

    def get_serializer_context(self) -> dict[str, Any]:
        extra = {"user": self.request.user, "token": token_of(self.request)}
        return {**super().get_serializer_context(), **extra}

    def finalize_response(
        self, request: Request, response: Any, *args: Any, **kwargs: Any
    ) -> Response:
        response[REQUEST_ID] = request_id(request._request)
        for name, value in limit_headers(request).items():
            response[name] = value
        if isinstance(response, TurnStreamResponse):
            _pass_credential(request)
        elif isinstance(response, Response):
            response.add_post_render_callback(_note_size)
        return super().finalize_response(request, response, *args, **kwargs)


def _note_size(response: Any) -> None:
    """Count the body as garbage: it stays in a reference cycle until a collection."""
    schedule_trim(len(response.content))


def _pass_credential(request: Request) -> None:
    """Put the credential into the scope: `StreamMiddleware` ends revoked streams."""
    scope = getattr(request._request, "scope", None)
    if scope is None:  # a test client, which has no stream
        return
    if token := token_of(request):
        scope[CREDENTIAL] = Credential.of_token(token)
    elif key := request._request.session.session_key:
        scope[CREDENTIAL] = Credential.of_session(request.user, key)


@schema.describe_view(
    get={"responses": {200: ConversationSerializer, **schema.errors(400)}},
    post={
        "responses": {201: ConversationSerializer, **schema.errors(404, *schema.BODY)}
    },
)
class ConversationsView(ApiView, generics.ListCreateAPIView[Conversation]):
    serializer_class = ConversationSerializer
    pagination_class = NewestFirst

    def get_queryset(self) -> QuerySet[Conversation]:
        return _conversations(self.request)

    def perform_create(self, serializer: Any) -> None:
        serializer.save(owner=self.request.user)


@schema.describe_view(
    get={"responses": {200: ConversationSerializer, **schema.errors(404)}},
    patch={
        "responses": {200: ConversationSerializer, **schema.errors(404, *schema.BODY)}
    },
    delete={"responses": {204: None, **schema.errors(404)}},
)
class ConversationView(ApiView, generics.RetrieveUpdateDestroyAPIView[Conversation]):
    serializer_class = ConversationSerializer
    http_method_names = ["get", "patch", "delete", "head", "options"]

    def get_queryset(self) -> QuerySet[Conversation]:
        return _conversations(self.request)

    def perform_update(self, serializer: Any) -> None:
        before = serializer.instance.title
        found = serializer.save()
        if found.title != before:
            engine.announce_rename(found)

    def perform_destroy(self, instance: Conversation) -> None:
        instance.delete_softly()
        for turn in instance.turns.not_finished():
            engine.cancel(turn)


class TurnsView(ApiView, generics.ListAPIView[Turn]):
    serializer_class = TurnSerializer
    pagination_class = OldestFirst

    def get_queryset(self) -> QuerySet[Turn]:
        return _turns(self.request).filter(conversation=self._conversation())

    @schema.describe(responses={200: TurnSerializer, **schema.errors(400, 404)})
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """The conversation's turns, oldest first, each with its items."""
        return super().get(request, *args, **kwargs)

    @schema.describe(
        request=TurnRequestSerializer,
        parameters=[schema.KEY],
        responses={
            (202, schema.JSON): TurnSerializer,
            (200, schema.JSON): schema.RESPONSE,
            (200, schema.EVENT_STREAM): schema.STREAM,
            **schema.errors(404, 409, 502, 504, *schema.BODY),
        },
    )
    def post(self, request: Request, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """Say something. The turn that answers comes at once (202); with `wait` the
        finished response, whose `status` may be `failed`; with `stream` its events."""
        serializer = TurnRequestSerializer(data=request.data, context=self._context())
        serializer.is_valid(raise_exception=True)
        turn = serializer.save()
        engine.submit(turn.pk, turn.conversation_id, turn)
        if serializer.validated_data["wait"]:
            return TurnStreamResponse(turn.pk, form="response")
        if serializer.validated_data["stream"]:
            return TurnStreamResponse(turn.pk)
        shown = _TURN_SERIALIZER.to_representation(_prefetch_rows(turn))
        return Response(shown, status=status.HTTP_202_ACCEPTED)

    def _conversation(self) -> Conversation:
        user = self.request.user
        found = Conversation.objects.find(user, self.kwargs["pk"])
        if found is None:
            raise Http404
        return found

    def _context(self) -> dict[str, Any]:
        return {
            "user": self.request.user,
            "token": token_of(self.request),
            "conversation": self._conversation(),
            "idempotency_key": self.request.headers.get("Idempotency-Key"),
        }


@schema.describe_view(
    get={"responses": {200: TurnDetailSerializer, **schema.errors(404)}}
)
class TurnView(ApiView, generics.RetrieveAPIView[Turn]):
    serializer_class = TurnDetailSerializer

    def get_queryset(self) -> QuerySet[Turn]:
        return _turns(self.request)


class CancelView(ApiView):
    serializer_class = TurnDetailSerializer

    @schema.describe(
        request=None, responses={200: TurnDetailSerializer, **schema.errors(404)}
    )
    def post(self, request: Request, pk: str) -> Response:
        """Stop the turn in whatever phase; harmless where it is over."""
        engine.cancel(get_object_or_404(_turns(request), pk=pk))
        return Response(TurnDetailSerializer(_turns(request).get(pk=pk)).data)


class ContinueView(ApiView):
    serializer_class = TurnSerializer

    @schema.describe(
        request=None, responses={202: TurnSerializer, **schema.errors(404, 409)}
    )
    def post(self, request: Request, pk: str) -> Response:
        """Go on past the bound that the turn's message has reached (`halted_by` is
        `max_turns` or `max_cost`). The turn that goes on."""
        found = get_object_or_404(Turn.objects.of(request.user), pk=pk)
        try:
            turn = continue_message(found, request.user, token_of(request))
        except message_bounds.CannotContinue as exc:
            raise NothingToContinueConflict from exc
        shown = _TURN_SERIALIZER.to_representation(_prefetch_rows(turn))
        return Response(shown, status=status.HTTP_202_ACCEPTED)


class EventsView(ApiView):
    serializer_class = None

    @schema.describe(
        parameters=[*schema.POSITION, schema.FORM],
        responses={
            (200, schema.EVENT_STREAM): schema.STREAM,
            204: None,
            **schema.errors(400, 404),
        },
    )
    def get(self, request: Request, pk: str) -> HttpResponseBase:
        """The turn's events after a position; 204 where nothing more is to come."""
        turn = get_object_or_404(Turn.objects.of(request.user), pk=pk)
        return TurnStreamResponse(turn.pk, _position(request), _form(request))


class ModelsView(ApiView):
    serializer_class = ModelsSerializer

    @schema.describe(responses={200: ModelsSerializer, **schema.errors()})
    def get(self, request: Request) -> Response:
        """The models that this user may use."""
        models = router.available(request.user).select_related("provider")
        if (token := token_of(request)) and token.model_ids:
            models = models.filter(pk__in=token.model_ids)
        return Response({"data": ModelSerializer(models, many=True).data})


def _conversations(request: Request) -> QuerySet[Conversation]:
    return Conversation.objects.of(request.user).select_related(
        "language_model__provider", "preset__language_model__provider"
    )


def _turns(request: Request) -> QuerySet[Turn]:
    items = Item.objects.defer("provider_data").order_by("position")
    return (
        Turn.objects.of(request.user)
        .select_related("language_model__provider")
        .prefetch_related(Prefetch("items", items), "tool_calls")
    )


_ITEMS = CompiledQuery[Item](
    lambda turn: (
        Item.objects.defer("provider_data").filter(turn_id=turn).order_by("position")
    ),
    "a turn",
)
_CALLS = CompiledQuery[ToolCall](
    lambda turn: ToolCall.objects.filter(turn_id=turn).order_by("id"), "a turn"
)


#: One instance, because a serializer builds its fields on first use.
_TURN_SERIALIZER = TurnSerializer()


def _prefetch_rows(turn: Turn) -> Turn:
    """Fill the prefetch cache with prepared queries.

    `prefetch_related` would build the queries again each time.
    """
    vars(turn)["_prefetched_objects_cache"] = {
        "items": turn.opened_with or _ITEMS.all(turn.pk),
        "tool_calls": [] if turn.opened_with else _CALLS.all(turn.pk),
    }
    return turn


def _form(request: Request) -> Literal["events", "text"]:
    match request.query_params.get("format", "events"):
        case "events" | "text" as form:
            return form
    raise InvalidInput(InputError("format", "expected 'events' or 'text'."))


def _position(request: Request) -> str | None:
    """The position to stream from.

    The header comes first: a reconnecting browser repeats the old query.
    """
    header = request.headers.get("Last-Event-ID")
    after = header or request.query_params.get("after")
    if not after:
        return None
    try:
        return str(engine.Position.parse(after))
    except ValueError as exc:
        param = "Last-Event-ID" if header else "after"
        problem = "expected a position such as '1-42'."
        raise InvalidInput(InputError(param, problem)) from exc
