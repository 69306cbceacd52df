"""API views of a user's access tokens, sessions and password, for browser sessions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.contrib.auth import update_session_auth_hash
from django.db.models import F
from django.forms import BaseForm
from django.shortcuts import get_object_or_404
from rest_framework import serializers
from rest_framework.permissions import IsAuthenticated
from rest_framework.request import Request
from rest_framework.response import Response

from conversations.access.errors import Forbidden
from conversations.access.reauthentication import check_proof
from conversations.access.sessions import (
    end_others,
    sessions_of,
    sign_out_others,
    sign_out_session,
)
from conversations.api import schema
from conversations.api.authentication import BrowserPermission, token_of
from conversations.api.keyset_pages import list_queryset
from conversations.api.pagination import PageSerializer, list_rows
from conversations.api.views import ApiView
from conversations.forms.password_change_form import ThrottledPasswordChangeForm
from conversations.forms.token_forms import (
    TokenForm,
    TokenSettingsForm,
    unrevoked_tokens,
)
from conversations.models import LoggedRequest, SignedInSession
from conversations.models.access_token import AccessToken, Scope
from conversations.requests.fields import (
    StrictBooleanField,
    StrictSerializer,
    TextField,
)
from llm import router
from llm.models import LanguageModel

#: Lists of a token's rights, whose fields have the prefix `allowed_`.
_LISTS = ("models", "tools", "conversations", "folders")
MAX_LISTED = 1000  # conversations or folders of one token


class BrowserView(ApiView):
    permission_classes = [IsAuthenticated, BrowserPermission]


# Access tokens


class TokenSerializer(serializers.ModelSerializer[Any]):
    models = serializers.SerializerMethodField(
        help_text="Those that it may call; empty for all."
    )

    tools = serializers.SerializerMethodField(
        help_text="Tools of this server that it may use; empty for all."
    )

    conversations = serializers.SerializerMethodField(
        help_text="Those that it may reach; with `folders` empty too, all."
    )

    folders = serializers.SerializerMethodField(
        help_text="Folders whose conversations it may reach."
    )

    class Meta:
        model = AccessToken
        fields = [
            *("id", "label", "prefix", "scopes", "models", "tools", "networks"),
            *("conversations", "folders"),
            *("requests_per_minute", "tokens_per_minute", "budget", "budget_period"),
            *("stores_responses", "allowed_origins", "logs_requests_until"),
            *("expires_at", "last_used_at", "created_at"),
        ]

    allowed_origins = serializers.SerializerMethodField(
        help_text="Origins of web pages that may use it."
    )

    def get_allowed_origins(self, row: AccessToken) -> list[str]:
        return row.allowed_origins.split()

    def get_tools(self, row: AccessToken) -> list[str]:
        return sorted(row.tool_names)

    def get_conversations(self, row: AccessToken) -> list[str]:
        return row.allowed_conversations.split()

    def get_folders(self, row: AccessToken) -> list[int]:
        return sorted(map(int, row.allowed_folders.split()))

    def get_models(self, row: AccessToken) -> list[str]:
        return [model.public_name for model in row.allowed_models.all()]


class TokensSerializer(PageSerializer):
    results = TokenSerializer(many=True)
    data = TokenSerializer(many=True, help_text="The same as `results`.")  # type: ignore[assignment]


class IssuedTokenSerializer(TokenSerializer):
    token = serializers.CharField(help_text="It is shown once, and not stored.")

    class Meta(TokenSerializer.Meta):
        fields = [*TokenSerializer.Meta.fields, "token"]


class NewTokenSerializer(StrictSerializer):
    """Fields of `TokenForm`, which checks them."""

    label = TextField(max_length=100)  # type: ignore[assignment]
    scopes = serializers.ListField(child=TextField(), required=False)
    models = serializers.ListField(child=TextField(), required=False)
    tools = serializers.ListField(child=TextField(), required=False)
    conversations = serializers.ListField(
        child=TextField(max_length=64), required=False, max_length=MAX_LISTED
    )
    folders = serializers.ListField(
        child=serializers.IntegerField(min_value=0, max_value=10**17),
        required=False,
        max_length=MAX_LISTED,
    )
    networks = serializers.ListField(child=TextField(), required=False)
    requests_per_minute = serializers.IntegerField(required=False, allow_null=True)
    tokens_per_minute = serializers.IntegerField(required=False, allow_null=True)
    budget = serializers.DecimalField(
        required=False, allow_null=True, max_digits=12, decimal_places=2
    )
    budget_period = serializers.ChoiceField(
        required=False, choices=AccessToken.Period.choices
    )
    expires_on = serializers.DateField(required=False, allow_null=True)
    stores_responses = StrictBooleanField(required=False)
    allowed_origins = serializers.ListField(child=TextField(), required=False)

    def validate_models(self, names: list[str]) -> list[LanguageModel]:
        known = {row.public_name: row for row in router.available(self.context["user"])}
        if unknown := [name for name in names if name not in known]:
            name = unknown[0][:100]
            raise serializers.ValidationError(f"There is no model {name!r}.")
        return [known[name] for name in names]


class TokensView(BrowserView):
    serializer_class = TokensSerializer

    @schema.describe(
        parameters=schema.list_parameters(),
        responses={200: TokensSerializer, **schema.errors()},
    )
    def get(self, request: Request) -> Response:
        """The user's access tokens that are not revoked."""
        return list_queryset(
            request,
            unrevoked_tokens(request.user),
            TokenSerializer,
            by=F("created_at"),
            falling=True,
            searched=["label"],
        )

    @schema.describe(
        request=NewTokenSerializer,
        responses={201: IssuedTokenSerializer, **schema.errors(*schema.BODY)},
    )
    def post(self, request: Request) -> Response:
        """Create an access token."""
        check_proof(request)
        new = NewTokenSerializer(
            data=request.data, context=self.get_serializer_context()
        )
        new.is_valid(raise_exception=True)
        form = TokenForm(_form_data(new.validated_data), user=request.user)
        _check(form, renamed={f"allowed_{name}": name for name in _LISTS})
        row, token = form.issue()
        issued = {**TokenSerializer(row).data, "token": token}
        return Response(issued, status=201)


class TokenChangeSerializer(StrictSerializer):
    label = TextField(max_length=100, required=False)  # type: ignore[assignment]
    stores_responses = StrictBooleanField(required=False)
    allowed_origins = serializers.ListField(child=TextField(), required=False)
    logs_requests = StrictBooleanField(
        required=False, help_text="Log the requests of the next 24 hours, or none."
    )


class TokenView(BrowserView):
    serializer_class = TokenSerializer

    @schema.describe(
        request=TokenChangeSerializer,
        responses={200: TokenSerializer, **schema.errors(404, *schema.BODY)},
    )
    def patch(self, request: Request, pk: int) -> Response:
        """Change an access token's name, origins, store default or log."""
        row = get_object_or_404(unrevoked_tokens(request.user), pk=pk)
        change = TokenChangeSerializer(data=request.data)
        change.is_valid(raise_exception=True)
        values = dict(change.validated_data)
        logs_requests = values.pop("logs_requests", None)
        if "allowed_origins" in values:
            values["allowed_origins"] = "\n".join(values["allowed_origins"])
        names = ("label", "stores_responses", "allowed_origins")
        form = TokenSettingsForm(
            {**{name: getattr(row, name) for name in names}, **values}, instance=row
        )
        _check(form)
        form.save()
        if logs_requests is not None:
            row.log_requests(on=logs_requests)
        return Response(TokenSerializer(row).data)

    @schema.describe(responses={204: None, **schema.errors(404)})
    def delete(self, request: Request, pk: int) -> Response:
        """Revoke an access token."""
        get_object_or_404(unrevoked_tokens(request.user), pk=pk).revoke()
        return Response(status=204)


class LogEntrySerializer(serializers.ModelSerializer[Any]):
    class Meta:
        model = LoggedRequest
        fields = [
            *("id", "request_id", "client_request_id", "created_at", "method", "path"),
            *("model", "status", "seconds", "request_size", "response_size"),
        ]


class LogEntryContentSerializer(LogEntrySerializer):
    request_text = serializers.CharField(help_text="Without keys, at most 64 KB.")
    response_text = serializers.CharField(help_text="As `request_text`.")

    class Meta(LogEntrySerializer.Meta):
        fields = [*LogEntrySerializer.Meta.fields, "request_text", "response_text"]


class LogEntriesSerializer(PageSerializer):
    results = LogEntrySerializer(many=True)
    data = LogEntrySerializer(many=True, help_text="The same as `results`.")  # type: ignore[assignment]


class RequestLogView(ApiView):
    """For browser sessions of the token's owner, and for the token itself."""

    limits_conversations = True
    token_scopes = tuple(Scope.values)

    def token(self, pk: int) -> AccessToken:
        own = token_of(self.request)
        if own is not None and own.pk != pk:
            raise Forbidden("A token can read its own log only.")
        return get_object_or_404(unrevoked_tokens(self.request.user), pk=pk)


class LoggedRequestsView(RequestLogView):
    serializer_class = LogEntriesSerializer

    @schema.describe(
        operation_id="tokens_requests_list",
        parameters=schema.list_parameters("status"),
        responses={200: LogEntriesSerializer, **schema.errors(403, 404)},
    )
    def get(self, request: Request, pk: int) -> Response:
        """Requests of a token in the last 24 hours, while its log was on."""
        rows = self.token(pk).logged_requests.fresh()
        rows = rows.defer("request_body", "response_body")
        return list_queryset(
            request,
            rows,
            LogEntrySerializer,
            falling=True,
            searched=["request_id", "client_request_id", "model", "path"],
            filtered={"status": "status"},
        )


class LoggedRequestView(RequestLogView):
    serializer_class = LogEntryContentSerializer

    @schema.describe(
        responses={200: LogEntryContentSerializer, **schema.errors(403, 404)}
    )
    def get(self, request: Request, pk: int, row: int) -> Response:
        """One logged request with its bodies."""
        found = get_object_or_404(self.token(pk).logged_requests.fresh(), pk=row)
        return Response(LogEntryContentSerializer(found).data)


_ROWS = _LISTS  # which the form names differently


def _form_data(values: Mapping[str, Any]) -> dict[str, Any]:
    """What the page's form would send; fields that were left out have its defaults."""
    fields: Mapping[str, Any] = TokenForm.base_fields
    defaults = {name: field.initial for name, field in fields.items()}
    data = {name: each() if callable(each) else each for name, each in defaults.items()}
    data |= {name: value for name, value in values.items() if name not in _ROWS}
    data["stores_responses"] = values.get("stores_responses", True)
    data["allowed_origins"] = "\n".join(values.get("allowed_origins", ()))
    data["budget_period"] = data["budget_period"] or AccessToken.Period.TOTAL
    data["allowed_models"] = [model.pk for model in values.get("models", ())]
    for name in ("tools", "conversations", "folders"):
        data[f"allowed_{name}"] = [str(each) for each in values.get(name, ())]
    return data


def _check(form: BaseForm, renamed: Mapping[str, str] | None = None) -> None:
    """Raise ValidationError with the form's errors, by the names of the API."""
    if not form.is_valid():
        names, errors = renamed or {}, form.errors.get_json_data()
        raise serializers.ValidationError(
            {
                names.get(name, name): [error["message"] for error in found]
                for name, found in errors.items()
            }
        )


# Sessions


class SessionSerializer(serializers.ModelSerializer[Any]):
    browser = serializers.CharField()
    is_own = serializers.SerializerMethodField(help_text="Whether it is this session.")

    class Meta:
        model = SignedInSession
        fields = ["id", "browser", "address", "is_own", "created_at", "last_used_at"]

    def get_is_own(self, row: SignedInSession) -> bool:
        return bool(row.session_key == self.context["session_key"])


class SessionsSerializer(PageSerializer):
    results = SessionSerializer(many=True)
    data = SessionSerializer(many=True, help_text="The same as `results`.")  # type: ignore[assignment]


class SessionsView(BrowserView):
    serializer_class = SessionsSerializer

    @schema.describe(
        parameters=schema.list_parameters(),
        responses={200: SessionsSerializer, **schema.errors()},
    )
    def get(self, request: Request) -> Response:
        """Where the user is signed in."""
        context = {"session_key": request.session.session_key}
        rows = sessions_of(request.user)
        shown = SessionSerializer(rows, many=True, context=context).data
        return list_rows(request, shown, searched=["browser", "address"])

    @schema.describe(
        operation_id="other_sessions_destroy",
        responses={204: None, **schema.errors(403)},
    )
    def delete(self, request: Request) -> Response:
        """End all other sessions."""
        check_proof(request)
        sign_out_others(request.user, request.session.session_key)
        return Response(status=204)


class SessionView(BrowserView):
    @schema.describe(responses={204: None, **schema.errors(403, 404)})
    def delete(self, request: Request, pk: int) -> Response:
        """End a session."""
        check_proof(request)
        row = get_object_or_404(SignedInSession, pk=pk, user_id=request.user.pk)
        sign_out_session(row)
        return Response(status=204)


# The password


class PasswordSerializer(StrictSerializer):
    old_password = TextField(trim_whitespace=False, max_length=4096, write_only=True)
    new_password = TextField(trim_whitespace=False, max_length=4096, write_only=True)


class PasswordView(BrowserView):
    serializer_class = PasswordSerializer

    @schema.describe(
        request=PasswordSerializer,
        responses={204: None, **schema.errors(*schema.BODY)},
    )
    def post(self, request: Request) -> Response:
        """Change the password. It ends all other sessions."""
        serializer = PasswordSerializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        new = serializer.validated_data["new_password"]
        form = ThrottledPasswordChangeForm(
            request.user,
            request=request,
            data={
                "old_password": serializer.validated_data["old_password"],
                "new_password1": new,
                "new_password2": new,
            },
        )
        _check(
            form,
            renamed=dict.fromkeys(("new_password1", "new_password2"), "new_password"),
        )
        user = form.save()
        update_session_auth_hash(request, user)
        end_others(user, request.session.session_key)
        return Response(status=204)
