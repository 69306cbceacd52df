"""API views of tool calls: questions to users, background calls, and the callback that
receives results from outside."""

from __future__ import annotations

from typing import Any

from django.core import signing
from django.db.models import F, QuerySet
from django.http import Http404
from django.shortcuts import get_object_or_404
from django.urls import reverse
from drf_spectacular.utils import OpenApiParameter, extend_schema_field
from rest_framework import generics, serializers, status
from rest_framework.exceptions import APIException
from rest_framework.request import Request
from rest_framework.response import Response

from conversations import engine
from conversations.access import admission
from conversations.api import schema
from conversations.api.authentication import token_of
from conversations.api.filters import limit_by
from conversations.api.keyset_pages import WHOLE, list_queryset, search
from conversations.api.pagination import OldestFirst, PageSerializer
from conversations.api.views import ApiView
from conversations.engine import background_store
from conversations.input.checks import InputError
from conversations.models import (
    Conversation,
    Question,
    QuestionQuerySet,
    ToolCall,
)
from conversations.models.access_token import Scope
from conversations.requests.errors import InvalidInput
from conversations.requests.fields import StrictSerializer, TextField
from conversations.requests.question_answers import AnswerSerializer, answer_question
from tools.errors import ToolError

#: A token needs one of these scopes.
_TOOLS = (Scope.CHAT, Scope.TOOLS)
_CONVERSATION = "tool_call__turn__conversation"


class CallAlreadyOver(APIException):
    status_code = status.HTTP_410_GONE
    default_detail = "This call has ended; a result is no longer accepted."
    default_code = "call_over"


class QuestionSerializer(serializers.ModelSerializer[Any]):
    """What a call of a tool asks a person."""

    conversation = serializers.CharField(
        source="tool_call.turn.conversation_id", read_only=True
    )
    turn = serializers.CharField(source="tool_call.turn_id", read_only=True)
    call_id = serializers.CharField(source="tool_call.call_id", read_only=True)
    name = serializers.CharField(source="tool_call.name", read_only=True)
    decided_by = serializers.SerializerMethodField()
    server = serializers.CharField(
        read_only=True, allow_null=True, help_text="For a sign-in: where."
    )
    url = serializers.SerializerMethodField(
        help_text="For a sign-in: the page that the user opens in a browser, signed in"
        " to this server."
    )

    may_always = serializers.SerializerMethodField(
        help_text="Whether your answer may hold for further calls in this chat."
    )

    class Meta:
        model = Question
        fields = [
            "id",
            "kind",
            "conversation",
            "turn",
            "call_id",
            "name",
            "message",
            "schema",
            "arguments",
            "server",
            "url",
            "answer",
            "state",
            "note",
            "may_always",
            "always",
            "asked_at",
            "expires_at",
            "decided_at",
            "decided_by",
        ]

    @extend_schema_field({"type": "string", "nullable": True})
    def get_decided_by(self, question: Question) -> str | None:
        return str(question.decided_by) if question.decided_by else None

    def get_may_always(self, question: Question) -> bool:
        request = self.context.get("request")
        if request is None or question.state != Question.State.OPEN:
            return False
        return question.may_cover_chat(request.user)

    def get_url(self, question: Question) -> str:
        request = self.context.get("request")
        url = question.sign_in_url
        return request.build_absolute_uri(url) if request and url else url


class CallSerializer(serializers.ModelSerializer[Any]):
    """A call of a tool, and what has become of it."""

    turn = serializers.CharField(source="turn_id", read_only=True)
    delivered_in = serializers.CharField(
        source="delivered_in_id", read_only=True, allow_null=True
    )
    seconds = serializers.FloatField(read_only=True, allow_null=True)

    class Meta:
        model = ToolCall
        fields = [
            "id",
            "turn",
            "call_id",
            "name",
            "state",
            "blocking",
            "attempts",
            "progress",
            "seconds",
            "error",
            "started_at",
            "accepted_at",
            "deadline_at",
            "ended_at",
            "late_at",
            "delivered_in",
        ]


class OpenQuestionsSerializer(PageSerializer):
    results = QuestionSerializer(many=True)
    data = QuestionSerializer(many=True, help_text="The same as `results`.")  # type: ignore[assignment]


_PAGES = ["limit", "cursor", "query", "kind", "conversation"]


class OpenQuestionsView(ApiView):
    limits_conversations = True
    token_scopes = _TOOLS
    serializer_class = OpenQuestionsSerializer

    @schema.describe(
        parameters=schema.list_parameters("kind", "conversation"),
        responses={200: OpenQuestionsSerializer, **schema.errors()},
    )
    def get(self, request: Request) -> Response:
        """The open questions that this user may answer, oldest first."""
        return _list_questions(request)


def _list_questions(request: Request) -> Response:
    return list_queryset(
        request,
        _questions(request).open(),
        QuestionSerializer,
        by=F("asked_at"),
        searched=["message", "tool_call__name"],
        filtered={"kind": "kind", "conversation": _CONVERSATION},
        context={"request": request},
    )


class QuestionsView(ApiView, generics.ListAPIView[Question]):
    limits_conversations = True
    token_scopes = _TOOLS
    serializer_class = QuestionSerializer
    pagination_class = None

    def get_queryset(self) -> QuerySet[Question]:
        return _questions(self.request).open()[:WHOLE]

    @schema.describe(
        deprecated=True,
        also_accepted=_PAGES,
        responses={200: QuestionSerializer(many=True), **schema.errors()},
    )
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """The first questions of `/api/questions/open/`, as an array. With `limit` or
        another parameter of that address, it answers as that one does."""
        if request.query_params:
            return _list_questions(request)
        answer = super().get(request, *args, **kwargs)
        address = request.build_absolute_uri(reverse("api:open-questions"))
        answer["Link"] = f'<{address}>; rel="successor-version"'
        return answer


class QuestionView(ApiView, generics.RetrieveAPIView[Question]):
    limits_conversations = True
    token_scopes = _TOOLS
    serializer_class = QuestionSerializer

    def get_queryset(self) -> QuerySet[Question]:
        return _questions(self.request)

    @schema.describe(responses={200: QuestionSerializer, **schema.errors(404)})
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """One question."""
        return super().get(request, *args, **kwargs)


class AnswerView(ApiView):
    limits_conversations = True
    #: By itself: a program that may start a tool must not approve it as well.
    token_scopes = (Scope.APPROVE,)
    serializer_class = AnswerSerializer

    @schema.describe(
        summary="Answer a question",
        request=AnswerSerializer,
        responses={
            200: QuestionSerializer,
            **schema.errors(403, 404, 409, *schema.BODY),
        },
    )
    def post(self, request: Request, pk: str) -> Response:
        """Agree or not; who is first decides."""
        question = get_object_or_404(_questions(request), pk=pk)
        if (token := token_of(request)) is not None:
            admission.check_tool(token, question.tool_call.name)
        serializer = AnswerSerializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        answer_question(question, request.user, **serializer.validated_data)
        decided = _questions(request).get(pk=pk)
        context = {"request": request}
        return Response(QuestionSerializer(decided, context=context).data)


class StandingApprovalSerializer(serializers.ModelSerializer[Any]):
    """A tool that runs unasked in a conversation, for the user's own messages."""

    conversation = serializers.CharField(
        source="tool_call.turn.conversation_id", read_only=True
    )
    name = serializers.CharField(source="tool_call.name", read_only=True)

    class Meta:
        model = Question
        fields = ["id", "conversation", "name", "decided_at"]


class StandingApprovalsSerializer(PageSerializer):
    results = StandingApprovalSerializer(many=True)
    data = StandingApprovalSerializer(many=True, help_text="The same as `results`.")  # type: ignore[assignment]


def _standing(request: Request) -> QuestionQuerySet:
    mine = Question.objects.covering_chats().filter(decided_by=request.user.pk)
    return mine.select_related("tool_call__turn")


class StandingApprovalsView(ApiView):
    token_scopes = _TOOLS
    serializer_class = StandingApprovalsSerializer

    @schema.describe(
        parameters=schema.list_parameters("conversation", "name"),
        responses={200: StandingApprovalsSerializer, **schema.errors()},
    )
    def get(self, request: Request) -> Response:
        """Approvals of this user that cover further calls in their chats."""
        return list_queryset(
            request,
            _standing(request),
            StandingApprovalSerializer,
            by=F("asked_at"),
            searched=["tool_call__name"],
            filtered={"conversation": _CONVERSATION, "name": "tool_call__name"},
        )


class StandingApprovalView(ApiView):
    token_scopes = _TOOLS

    @schema.describe(
        summary="Revoke an approval", responses={204: None, **schema.errors(404)}
    )
    def delete(self, request: Request, pk: str) -> Response:
        """From now on the tool asks again in that chat."""
        found = get_object_or_404(_standing(request), pk=pk)
        _standing(request).of_tool_in_chat(found).revoke(request.user)
        return Response(status=status.HTTP_204_NO_CONTENT)


class CallsView(ApiView, generics.ListAPIView[ToolCall]):
    limits_conversations = True
    token_scopes = _TOOLS
    serializer_class = CallSerializer
    pagination_class = OldestFirst

    def get_queryset(self) -> QuerySet[ToolCall]:
        conversations = Conversation.objects.visible_to(self.request.user)
        conversation = get_object_or_404(conversations, pk=self.kwargs["pk"])
        calls = ToolCall.objects.filter(
            turn__conversation=conversation, turn__deleted_at=None
        )
        found = limit_by(calls, self.request, state=ToolCall.State, name=None)
        return search(found, self.request, ["name"])

    @schema.describe(
        parameters=[
            schema.choice_of("state", ToolCall.State),
            OpenApiParameter("name", str, description="Only calls of this tool."),
            schema.QUERY,
        ],
        responses={200: CallSerializer, **schema.errors(400, 404)},
    )
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """All calls of the conversation's tools, oldest first."""
        return super().get(request, *args, **kwargs)


class CallCancelView(ApiView):
    limits_conversations = True
    token_scopes = _TOOLS
    serializer_class = CallSerializer

    @schema.describe(
        request=None, responses={202: CallSerializer, **schema.errors(404)}
    )
    def post(self, request: Request, pk: int) -> Response:
        """Cancel a call in the background; harmless where it is over."""
        call = get_object_or_404(ToolCall.objects.writable_by(request.user), pk=pk)
        engine.cancel_call(call)
        return Response(CallSerializer(call).data, status=status.HTTP_202_ACCEPTED)


class ResultSerializer(StrictSerializer):
    output = serializers.JSONField(required=False)
    error = TextField(required=False, max_length=2000)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if ("output" in attrs) == ("error" in attrs):
            raise serializers.ValidationError({"output": "Give 'output' or 'error'."})
        return attrs


class CallbackView(ApiView):
    """The token in the URL authorizes posting this one result."""

    authentication_classes = ()
    permission_classes = ()
    serializer_class = ResultSerializer

    @schema.describe(
        summary="Deliver the result of a call",
        request=ResultSerializer,
        responses={204: None, **schema.errors(404, 410, *schema.BODY, public=True)},
        auth=[],
    )
    def post(self, request: Request, token: str) -> Response:
        """The result of a call that was accepted before. The first one counts."""
        call = _find_call(token)
        serializer = ResultSerializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        result = serializer.validated_data
        error = result.get("error", "")
        try:
            engine.dispatch_result(
                background_store.deliver(call.pk, result.get("output"), error=error)
            )
        except ToolError as exc:
            raise InvalidInput(InputError("output", str(exc))) from exc
        except background_store.TooLate as exc:
            raise CallAlreadyOver from exc
        return Response(status=status.HTTP_204_NO_CONTENT)


def _find_call(token: str) -> ToolCall:
    try:
        return get_object_or_404(ToolCall, pk=background_store.call_of(token))
    except signing.BadSignature as exc:
        raise Http404 from exc


def _questions(request: Request) -> QuestionQuerySet:
    rows = Question.objects.answerable_by(request.user)
    return rows.select_related("tool_call__turn", "decided_by", "server")
