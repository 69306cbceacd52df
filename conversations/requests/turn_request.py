"""The request that opens a turn: its checks, its limits and its idempotency key."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import orjson
from django.db import transaction
from rest_framework import serializers

from conversations.access import admission, budget, maintenance
from conversations.access.admission import check_user_tokens_available
from conversations.access.declared_tools import check_declared_kinds
from conversations.access.errors import (
    BudgetExhausted,
    Forbidden,
    UsageLimitReached,
)
from conversations.access.limits import applicable
from conversations.access.limits.admission import admit_message
from conversations.access.webhooks.limit_events import write_note
from conversations.engine.loading.preset_limits import check_model
from conversations.input.checks import InputError, InputSizeError, short_repr
from conversations.input.client_outputs import OUTPUT_TYPES
from conversations.models import (
    Conversation,
    IdempotencyKey,
    Item,
    KeyReused,
    MessageRemoved,
    OpenedTurn,
    Turn,
)
from conversations.models.access_token import AccessToken, Scope
from conversations.models.turn import CALLER
from conversations.requests.errors import (
    IdempotencyKeyConflict,
    InvalidInput,
    MessageRemovedConflict,
)
from conversations.requests.fields import (
    CallTagsField,
    InputField,
    OptionsField,
    ResolvedModel,
    ResolvedModelField,
    StrictBooleanField,
    StrictSerializer,
    TextField,
    resolve_model,
)
from conversations.requests.queue_changes import notify_running_turn
from conversations.turns import waiting_messages
from conversations.turns.attachments import (
    UnknownFile,
    UploadRefused,
    check_inline_quota,
    resolve_file_parts,
)
from conversations.turns.history import estimate_tokens
from llm.adaptation import hosted_tools as hosted
from llm.models import LanguageModel
from llm.pricing.caller import MAX_NAME
from llm.provider import Route
from llm.wire.items import Item as ItemPayload

KEY_LENGTH = 255  # characters
_PLACES = ("parent", "previous_response_id", "branch")


class TurnRequestSerializer(StrictSerializer):
    """A message to a conversation. Context: `user`, `conversation`, and maybe
    `idempotency_key`."""

    input = InputField(help_text="A string, Responses items, or {role, content}s.")
    model = ResolvedModelField(required=False, allow_null=True)
    options = OptionsField(required=False)
    parent = TextField(  # type: ignore[assignment]
        required=False,
        allow_null=True,
        max_length=64,
        help_text=(
            "The turn that this one follows; null for the first turn of a new branch."
            " Without it the turn ends the branch that the user looks at."
        ),
    )
    previous_response_id = TextField(
        required=False,
        allow_null=True,
        max_length=64,
        help_text="The same as `parent`, by the name that the gateway has for it.",
    )
    branch = TextField(
        required=False,
        max_length=64,
        help_text="A turn: the new one follows the last turn of the branch with it.",
    )
    when = serializers.ChoiceField(
        choices=waiting_messages.WHENS,
        default="queue",
        help_text=(
            "While another turn runs: wait for its end, join it at its next step, or"
            " stop it."
        ),
    )
    wait = StrictBooleanField(
        default=False, help_text="Wait and return the finished response."
    )
    stream = StrictBooleanField(
        default=False, help_text="Stream the events of the turn."
    )

    end_user = TextField(
        required=False,
        max_length=MAX_NAME,
        help_text="Whom the message comes from, for sums of usage; no model sees it.",
    )
    tags = CallTagsField(required=False, help_text="Tags for sums of usage.")

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if attrs["wait"] and attrs["stream"]:
            raise serializers.ValidationError({"stream": "Choose 'wait' or 'stream'."})
        if not attrs.get("model"):
            attrs["model"] = self._usual_model()
        if (preset := self.context["conversation"].preset) is not None:
            check_model(preset, attrs["model"].model.pk)
        attrs["place"] = {}
        if named := [name for name in _PLACES if name in attrs]:
            attrs["place"] = self._place(attrs, named)
        # A text has no files and answers no call.
        self._is_text = isinstance(self.initial_data.get("input"), str)
        if not self._is_text:
            self._check_approvals(attrs["input"])
            self._check_outputs(attrs["input"])
            attrs["input"] = self._with_files(attrs["input"])
        options = attrs.get("options") or {}
        if options.get("tools") and not options.get("ignore_invalid_options"):
            self._check_declared(attrs["model"].route, options["tools"])
        set_before = self.context["conversation"].options_for(self.context["user"])
        if "tools" in set_before and "tools" not in options:
            # They were permitted when they were set, perhaps long ago.
            check_declared_kinds(
                set_before, self.context["user"], self.context.get("token")
            )
        return attrs

    def save(self, **kwargs: Any) -> OpenedTurn:
        """Open the turn; then only `validated_data` may be read.

        The fields refer to the serializer that holds them. Without this cycle the rows
        and the input are freed with the request, and not by the next garbage
        collection.
        """
        try:
            opened: OpenedTurn = super().save(**kwargs)
        except (BudgetExhausted, UsageLimitReached) as exc:
            write_note(exc)
            raise
        del self.fields
        return opened

    def create(self, validated_data: dict[str, Any]) -> OpenedTurn:
        """The new turn, or that of an earlier request with the same idempotency key."""
        token: AccessToken | None = self.context.get("token")
        resolved: ResolvedModel = validated_data["model"]
        items, key = validated_data["input"], self.context.get("idempotency_key")
        admit = partial(admit_message, self.context["user"].pk, token, items)
        opened: OpenedTurn | None = None

        def open_turn() -> Turn:
            nonlocal opened
            if maintenance.state.notice.refuses_messages:
                maintenance.check_open()
            if token is not None:
                _admit_turn(token, resolved.model, items)
            else:
                check_user_tokens_available(
                    self.context["user"], estimate_tokens("", items)
                )
            conversation: Conversation = self.context["conversation"]
            with transaction.atomic(savepoint=False):
                if not self._is_text:
                    self._check_quota(conversation, validated_data["input"])
                write: Callable[..., OpenedTurn] = conversation.open_turn
                if (when := validated_data["when"]) != "queue":
                    write = partial(
                        waiting_messages.open_message, conversation, when=when
                    )
                opened = write(
                    validated_data["input"],
                    language_model=resolved.model,
                    options=self._options(validated_data),
                    access_token=token,
                    **validated_data["place"],
                    author=self.context["user"],
                )
                if opened.turn.steering or opened.interrupted:
                    notify_running_turn(opened)
                if key is None and applicable.state.exists is not False:
                    admit()
            return opened.turn

        turn = (
            open_turn()
            if key is None
            else self._once(check_idempotency_key(key), open_turn, admit)
        )
        if opened is None or opened.turn is not turn:
            return OpenedTurn(turn=turn)
        return replace(opened, route=resolved.route)

    def _options(self, validated_data: dict[str, Any]) -> dict[str, Any] | None:
        """The options of the turn, with what the request said of its caller."""
        said = {
            name: validated_data[name]
            for name in ("end_user", "tags")
            if validated_data.get(name)
        }
        said |= self.context.get("request_ids") or {}
        options: dict[str, Any] | None = validated_data.get("options")
        return {**(options or {}), CALLER: said} if said else options

    def _place(self, attrs: dict[str, Any], named: list[str]) -> dict[str, Any]:
        """Where the turn goes in the tree, as arguments of `open_turn`."""
        if len(named) > 1:
            problem = f"send {named[0]!r} or {named[1]!r}, not both."
            raise InvalidInput(InputError(named[1], problem))
        turn_id = attrs[named[0]]
        if turn_id is None:
            return {"is_first": True}
        conversation: Conversation = self.context["conversation"]
        rows = conversation.turns.filter(deleted_at=None, pk=turn_id)
        is_branch = named == ["branch"]
        found = rows.exists() if is_branch else rows.first()
        if not found:
            problem = "there is no such turn in this conversation."
            raise InvalidInput(InputError(named[0], problem, code="unknown_turn"))
        return {"branch": turn_id} if is_branch else {"parent": found}

    def _check_quota(self, conversation: Conversation, items: list[Any]) -> None:
        try:
            check_inline_quota(self.context["user"].pk, items)
        except UploadRefused as exc:
            raise InvalidInput(
                InputSizeError("input", str(exc), code=exc.code)
            ) from exc

    def _once(
        self, key: str, open_turn: Callable[[], Turn], admit: Callable[[], None]
    ) -> Turn:
        try:
            turn, _ = IdempotencyKey.objects.get_or_open(
                self.context["user"], key, self._fingerprint(), open_turn, admit
            )
        except KeyReused as exc:
            raise IdempotencyKeyConflict from exc
        except MessageRemoved as exc:
            raise MessageRemovedConflict from exc
        return turn

    def _fingerprint(self) -> str:
        """Hash of the request without `wait` and `stream`; a retry may change those."""
        compared = {n: self.initial_data.get(n) for n in ("input", "model", "options")}
        places = {n: self.initial_data[n] for n in _PLACES if n in self.initial_data}
        compared |= places  # absent ones must not change fingerprints of before
        compared["conversation"] = self.context["conversation"].pk
        return hashlib.sha256(
            orjson.dumps(compared, option=orjson.OPT_SORT_KEYS)
        ).hexdigest()

    def _usual_model(self) -> ResolvedModel:
        usual = self.context["conversation"].usual_model
        name = usual.public_name if usual else None
        resolved = resolve_model(name, self.context["user"])
        resolved.model.pool_name = usual.pool_name if usual else ""
        return resolved

    def _with_files(self, items: list[ItemPayload]) -> Any:
        try:
            return resolve_file_parts(self.context["conversation"], items)
        except UnknownFile as exc:
            raise InvalidInput(
                InputError(exc.param, str(exc), code="unknown_file")
            ) from exc

    def _check_approvals(self, items: list[ItemPayload]) -> None:
        """Refuse a decision about a provider's call by a program that may not decide:
        one that may start a tool must not approve it as well."""
        token: AccessToken | None = self.context.get("token")
        if token is None or Scope.APPROVE in token.scopes:
            return
        if any(item["type"] == "mcp_approval_response" for item in items):
            raise Forbidden(param="input")

    def _check_outputs(self, items: list[ItemPayload]) -> None:
        """Refuse an output that answers no call of this conversation."""
        for kind, (answers, name, asks) in OUTPUT_TYPES.items():
            answered = {item[name] for item in items if item["type"] == kind}
            if not answered:
                continue
            rows = Item.objects.filter(
                turn__conversation=self.context["conversation"], type=answers
            )
            if unknown := answered - set(
                rows.values_list(f"payload__{asks}", flat=True)
            ):
                raise InvalidInput(
                    InputError(
                        "input",
                        f"no call with the id {min(unknown)[:100]!r} waits for an"
                        " output.",
                        code="unknown_call",
                    )
                )

    def _check_declared(self, route: Route, declared: list[Any]) -> None:
        """Refuse tools that the model's provider would run but does not support."""
        if not (hosted_tools := [each for each in declared if hosted.is_hosted(each)]):
            return
        functions = [each for each in declared if each not in hosted_tools]
        for tool in hosted_tools:
            why = hosted.why_route_refuses(route, tool, beside=functions)
            if why:
                index = declared.index(tool)
                problem = (
                    f"this model does not support {short_repr(tool['type'])}. {why}"
                )
                raise InvalidInput(InputError(f"options.tools[{index}]", problem))


def _admit_turn(
    token: AccessToken, model: LanguageModel, items: Sequence[ItemPayload]
) -> None:
    """Check the token's limits before a turn is opened.

    Raises ModelNotAvailable, TooFast, BudgetExhausted.
    """
    if token.model_ids:
        admission.check_model(token, model.pk, model.public_name)
    if token.tokens_per_minute:
        admission.check_tokens_available(token, estimate_tokens("", items))
    if token.budget is not None:
        budget.check_budget(token)


def check_idempotency_key(key: Any) -> str:
    """The request's idempotency key. Raises InvalidInput."""
    if not isinstance(key, str) or not key.isprintable() or not key.strip():
        problem = "expected a text of printable characters."
    elif len(key) > KEY_LENGTH:
        problem = f"longer than {KEY_LENGTH} characters."
    else:
        return key
    raise InvalidInput(InputError("Idempotency-Key", problem))
