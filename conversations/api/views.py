"""API views of conversations, their turns and the events of turns, and the base class
and the JSON parser of the API's other views."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import IO, Any, Literal

import orjson
from django.conf import settings
from django.db.models import Prefetch, QuerySet, prefetch_related_objects
from django.http import Http404, HttpResponse, HttpResponseBase
from django.shortcuts import get_object_or_404
from rest_framework import generics, status
from rest_framework.exceptions import ParseError
from rest_framework.metadata import BaseMetadata
from rest_framework.negotiation import DefaultContentNegotiation
from rest_framework.parsers import BaseParser
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from conversations import engine
from conversations.access import overload
from conversations.access.admission import rate_limit_headers
from conversations.access.errors import ConversationNotAllowed
from conversations.api import schema
from conversations.api.authentication import VERDICT, token_of
from conversations.api.errors import REQUEST_ID, PayloadTooLarge, request_id
from conversations.api.filters import limit_by, limit_conversations
from conversations.api.pagination import NewestFirst, OldestFirst, list_rows
from conversations.api.serializers import (
    ConversationSerializer,
    ModelSerializer,
    ModelsSerializer,
    TurnDetailSerializer,
    TurnSerializer,
)
from conversations.engine.connection_revocation import (
    STORE_CREDENTIAL,
    Connections,
    Credential,
    open_connections,
)
from conversations.engine.process.malloc_trim import schedule_trim
from conversations.http.sse import (
    STREAM_CACHING,
    STREAM_TYPE,
    StreamForm,
    TurnStreamResponse,
)
from conversations.input.checks import (
    MAX_DEPTH,
    InputError,
    check_no_nul,
    is_deeper,
)
from conversations.models import (
    BranchChoice,
    Conversation,
    Item,
    OpenedTurn,
    Tree,
    Turn,
)
from conversations.models.access_token import Scope
from conversations.models.last_seen import with_unread
from conversations.models.limits.conversation_limit import limit_of
from conversations.requests import schemas
from conversations.requests.errors import InvalidInput
from conversations.requests.queue_changes import stop_turn
from conversations.requests.turn_request import TurnRequestSerializer
from llm import router
from llm.pricing.caller import cut_name
from llm.telemetry import tracing
from llm.wire import bounded_json


class JSONParser(BaseParser):
    """Parses JSON objects that can be stored and sent on.

    It refuses lone surrogates, NUL, NaN, deep nesting and large bodies; DRF's own
    parser reads a body of any size.
    """

    media_type = "application/json"

    def parse(
        self,
        stream: IO[bytes],
        media_type: str | None = None,
        parser_context: Mapping[str, Any] | None = None,
    ) -> Any:
        limit = settings.DATA_UPLOAD_MAX_MEMORY_SIZE
        body = stream.read(limit + 1)
        if len(body) > limit:
            raise PayloadTooLarge(f"A request may be at most {limit} bytes long.")
        try:
            data = bounded_json.loads(body)
        except bounded_json.TooManyValues as exc:
            raise PayloadTooLarge(f"The request is too large: {exc.msg}.") from exc
        except orjson.JSONDecodeError as exc:
            raise ParseError(f"The body is not valid JSON: {exc}.") from exc
        if not isinstance(data, dict):
            raise ParseError("The body must be a JSON object.")
        if is_deeper(data):
            raise ParseError(f"The body is nested more than {MAX_DEPTH} levels deep.")
        try:
            check_no_nul(data, body)
        except InputError as exc:
            raise InvalidInput(exc) from exc
        return data


class _OnlyJSON(DefaultContentNegotiation):
    """Always selects JSON, and ignores `Accept` and `?format`, which streams use."""

    def select_renderer(
        self, request: Any, renderers: Any, format_suffix: Any = None
    ) -> Any:
        return renderers[0], renderers[0].media_type


class _OnlyName(BaseMetadata):
    """Answers OPTIONS, whose header `Allow` names the methods. DRF's own class also
    describes serializers, which not every view has; the OpenAPI document does that."""

    def determine_metadata(self, request: Any, view: Any) -> dict[str, str]:
        return {"name": view.get_view_name()}


class ApiView(generics.GenericAPIView[Any]):
    parser_classes = [JSONParser]
    renderer_classes = [JSONRenderer]
    metadata_class = _OnlyName
    content_negotiation_class = _OnlyJSON
    #: A token needs one of these; see `conversations.api.authentication`.
    token_scopes: tuple[str, ...] = (Scope.CHAT,)
    #: The conversation of a stream, if it is open only while the user takes part in it.
    _joined_conversation = ""

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        if request.query_params:
            self._check_query(request)

    def _check_query(self, request: Request) -> None:
        """Refuse a parameter that has no effect, so that no filter is lost in
        silence."""
        method = str(request.method).lower()
        if method == "options":
            return
        known = schema.described_query(self, "get" if method == "head" else method)
        if method in ("get", "head") and self.pagination_class is not None:
            known = [*known, "limit", "cursor"]
        for name in request.query_params:
            if name not in known:
                problem = f"unknown; use {', '.join(known) or 'none'}."
                refused = InputError(name[:100], problem, code="unknown_parameter")
                raise InvalidInput(refused)

    def get_serializer_context(self) -> dict[str, Any]:
        extra = {"user": self.request.user, "token": token_of(self.request)}
        return {**super().get_serializer_context(), **extra}

    def finalize_response(
        self, request: Request, response: Any, *args: Any, **kwargs: Any
    ) -> Response:
        response[REQUEST_ID] = request_id(request)
        if verdict := request.META.get(VERDICT):
            for name, value in rate_limit_headers(verdict).items():
                response[name] = value
        if isinstance(response, TurnStreamResponse):
            # A test client has no stream. Otherwise the middleware ends revoked ones.
            store = request.META.get(STORE_CREDENTIAL)
            if store is not None and (found := credential_of(request)):
                store(replace(found, conversation_id=self._joined_conversation))
        elif isinstance(response, Response):
            response.add_post_render_callback(_note_size)
        return super().finalize_response(request, response, *args, **kwargs)


def _note_size(response: Any) -> None:
    """Count the body as garbage: it stays in a reference cycle until a collection."""
    schedule_trim(len(response.content))


def _check_connection(request: Request, connections: Connections) -> None:
    """Before a turn is opened: it would run without its client's knowledge. Raises
    TooManyConnections."""
    if credential := credential_of(request):
        connections.check_room(credential)


def credential_of(request: Request) -> Credential | None:
    """How the client is signed in."""
    if token := token_of(request):
        return Credential(token.user_id, token_id=token.pk)
    key = request.session.session_key
    return Credential.of_session(request.user, key) if key else None


@schema.describe_view(
    get={
        "summary": "The user's conversations, last activity first",
        "parameters": schema.CONVERSATION_FILTERS,
        "responses": {200: ConversationSerializer, **schema.errors(400)},
    },
    post={
        "summary": "Create a conversation",
        "responses": {201: ConversationSerializer, **schema.errors(404, *schema.BODY)},
    },
)
class ConversationsView(ApiView, generics.ListCreateAPIView[Conversation]):
    limits_conversations = True
    serializer_class = ConversationSerializer
    pagination_class = NewestFirst

    def get_queryset(self) -> QuerySet[Conversation]:
        return limit_conversations(
            _conversations(self.request).filter(is_temporary=False), self.request
        )

    def perform_create(self, serializer: Any) -> None:
        if (limit := limit_of(self.request.user)) is not None:
            folder = serializer.validated_data.get("folder")
            if folder is None or folder.pk not in limit.folders:
                raise ConversationNotAllowed
        serializer.save(owner=self.request.user)


@schema.describe_view(
    get={
        "summary": "One conversation",
        "responses": {200: ConversationSerializer, **schema.errors(404)},
    },
    patch={
        "summary": "Change a conversation",
        "responses": {200: ConversationSerializer, **schema.errors(404, *schema.BODY)},
    },
    delete={
        "summary": "Delete a conversation; it can be restored until it is erased",
        "responses": {204: None, **schema.errors(404)},
    },
)
class ConversationView(ApiView, generics.RetrieveUpdateDestroyAPIView[Conversation]):
    limits_conversations = True
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
    limits_conversations = True
    serializer_class = TurnSerializer
    pagination_class = OldestFirst

    def get_queryset(self) -> QuerySet[Turn]:
        conversation = self._conversation(Conversation.objects.find_visible)
        turns = _turns(self.request).filter(conversation=conversation)
        line = _line_of(self.request, conversation)
        turns = limit_by(turns, self.request, status=Turn.Status)
        return turns if line is None else turns.filter(pk__in=line)

    def paginate_queryset(self, queryset: Any) -> Any:
        page = super().paginate_queryset(queryset)
        Turn.read_siblings(page or [])
        return page

    @schema.describe(
        parameters=[
            schema.BRANCH,
            schema.LEAF,
            schema.choice_of("status", Turn.Status),
        ],
        responses={200: TurnSerializer, **schema.errors(400, 404)},
    )
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """The conversation's turns, oldest first, each with its items: those of all
        branches, or of one."""
        return super().get(request, *args, **kwargs)

    @schema.describe(
        summary="Send a message; a turn answers it",
        request=TurnRequestSerializer,
        parameters=[schema.KEY],
        responses={
            (202, schemas.JSON): TurnSerializer,
            (200, schemas.JSON): schema.RESPONSE,
            (200, schemas.EVENT_STREAM): schema.STREAM,
            **schema.errors(404, 409, 502, 504, *schema.BODY),
        },
    )
    def post(self, request: Request, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """Say something. The turn that answers comes at once (202); with `wait` the
        finished response, whose `status` may be `failed`; with `stream` its events."""
        if overload.load.excess:  # else this way enters no function for it
            overload.check_room()
        serializer = TurnRequestSerializer(data=request.data, context=self._context())
        serializer.is_valid(raise_exception=True)
        waits = serializer.validated_data["wait"]
        follows = waits or serializer.validated_data["stream"]
        for connections in list(open_connections.of.values()):
            if follows and connections.full:  # else it enters no function for it
                _check_connection(request, connections)
        opened: OpenedTurn = serializer.save()
        turn = opened.turn
        engine.submit(turn.pk, turn.conversation_id, opened, request.user.pk)
        if follows:
            form: StreamForm = "response" if waits else "events"
            return TurnStreamResponse(turn.pk, form=form, is_checked=True)
        return Response(show_turn(turn), status=status.HTTP_202_ACCEPTED)

    def _conversation(self, find: Callable[..., Conversation | None]) -> Conversation:
        found = find(self.request.user, self.kwargs["pk"])
        if found is None:
            raise Http404
        if found.owner_id != self.request.user.pk:
            self._joined_conversation = found.pk
        return found

    def _context(self) -> dict[str, Any]:
        ids = {"request_id": request_id(self.request)}
        if theirs := self.request.headers.get(REQUEST_ID):
            ids["client_request_id"] = cut_name(theirs)
        if tracing.spans is not None:
            ids["trace_parent"] = tracing.spans.current_traceparent()
        return {
            "user": self.request.user,
            "token": token_of(self.request),
            "conversation": self._conversation(Conversation.objects.find_writable),
            "idempotency_key": self.request.headers.get("Idempotency-Key"),
            "request_ids": ids,
        }


@schema.describe_view(
    get={
        "summary": "One turn, with its items and calls",
        "responses": {200: TurnDetailSerializer, **schema.errors(404)},
    }
)
class TurnView(ApiView, generics.RetrieveAPIView[Turn]):
    serializer_class = TurnDetailSerializer

    def get_queryset(self) -> QuerySet[Turn]:
        return _turns(self.request)


class CancelView(ApiView):
    limits_conversations = True
    serializer_class = TurnDetailSerializer

    @schema.describe(
        request=None, responses={200: TurnDetailSerializer, **schema.errors(404, 409)}
    )
    def post(self, request: Request, pk: str) -> Response:
        """Stop the turn in whatever phase; harmless where it is over."""
        writable = Turn.objects.writable_by(request.user)
        stop_turn(get_object_or_404(writable, pk=pk))
        return Response(self.get_serializer(_turns(request).get(pk=pk)).data)


class EventsView(ApiView):
    limits_conversations = True
    serializer_class = None

    @schema.describe(
        parameters=[*schema.POSITION, schema.FORM],
        responses={
            (200, schemas.EVENT_STREAM): schema.STREAM,
            204: None,
            **schema.errors(400, 404),
        },
    )
    def get(self, request: Request, pk: str) -> HttpResponseBase:
        """The turn's events after a position; 204 where nothing more is to come."""
        turns = Turn.objects.visible_to(request.user).select_related("conversation")
        turn = get_object_or_404(turns, pk=pk)
        if turn.conversation.owner_id != request.user.pk:
            self._joined_conversation = turn.conversation_id
        position, form = _position(request), _form(request)
        if request.method == "HEAD":
            return HttpResponse(
                content_type=STREAM_TYPE, headers={"Cache-Control": STREAM_CACHING}
            )
        return TurnStreamResponse(turn.pk, position, form)


class ModelsView(ApiView):
    limits_conversations = True
    serializer_class = ModelsSerializer

    @schema.describe(
        parameters=schema.list_parameters("provider"),
        responses={200: ModelsSerializer, **schema.errors()},
    )
    def get(self, request: Request) -> Response:
        """The models that this user may use."""
        models = router.available(request.user).select_related("provider")
        if (token := token_of(request)) and token.model_ids:
            models = models.filter(pk__in=token.model_ids)
        shown = ModelSerializer(models, many=True).data
        names = ["id", "label"]
        return list_rows(request, shown, searched=names, filtered=["provider"])


def _conversations(request: Request) -> QuerySet[Conversation]:
    return (
        with_unread(Conversation.objects.of(request.user), request.user)
        .select_related(
            "language_model__provider", "preset__language_model__provider", "folder"
        )
        .prefetch_related("tags")
    )


def _turns(request: Request) -> QuerySet[Turn]:
    visible = Turn.objects.visible_to(request.user)
    turns = visible.select_related("language_model__provider", "conversation")
    return turns.prefetch_related(*_rows_of_turns())


def _rows_of_turns() -> tuple[Prefetch[str], str]:
    items = Item.objects.defer("provider_data").order_by("position")
    return Prefetch("items", items), "tool_calls"


#: One instance, because a serializer builds its fields on first use.
_TURN_SERIALIZER = TurnSerializer()


def show_turn(turn: Turn) -> Any:
    return _TURN_SERIALIZER.to_representation(_prefetch_rows(turn))


def _prefetch_rows(turn: Turn) -> Turn:
    prefetch_related_objects([turn], *_rows_of_turns())
    return turn


def _line_of(request: Request, conversation: Conversation) -> list[str] | None:
    """Ids of the turns of the branch that the query names; None if it names none."""
    branch = request.query_params.get("branch")
    leaf = request.query_params.get("leaf")
    if branch is None and leaf is None:
        return None
    tree = Tree.of(conversation.pk)
    if branch == "shown":
        return tree.lineage(
            BranchChoice.objects.shown_leaf(conversation.pk, request.user.pk or 0)
        )
    named = leaf if leaf is not None else branch
    if named not in tree.turns:
        param = "branch" if leaf is None else "leaf"
        problem = "there is no such turn in this conversation."
        raise InvalidInput(InputError(param, problem, code="unknown_turn"))
    return tree.lineage(named if leaf is not None else tree.leaf_of(str(named)))


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
