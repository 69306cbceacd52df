"""Rows of a large installation, for the lists of the admin.

One row of each table is saved by the ORM, and copied by one `INSERT … SELECT` with
other ids, times and states.
"""

from __future__ import annotations

from datetime import timedelta

from axes.models import AccessAttempt, AccessFailureLog, AccessLog
from django.contrib.auth.models import Group, User
from django.core.management.color import no_style
from django.db import connection, models, transaction
from django.utils import timezone

from benchmarks.sql import numbers, random_uuid, time_before_now, with_id
from conversations.audit.act import Channel
from conversations.audit.models import AuditEvent, AuditText
from conversations.models import (
    AccessToken,
    Attachment,
    Conversation,
    IdempotencyKey,
    Item,
    LastSeen,
    Participant,
    Question,
    Rating,
    ShareLink,
    Tag,
    ToolCall,
    Turn,
)
from conversations.models.conversation_import import ConversationImport
from conversations.models.folder import Folder
from conversations.models.memory import Memory
from conversations.models.preset import Preset
from conversations.models.user_settings import UserSettings
from llm.models import ApiKey, LanguageModel, ModelCall, Provider
from llm.wire.items import message
from tools.models import Tool

USERS = 10_000
MODELS = 300
TURNS = 5  # of a conversation, with two items, a model call and a tool call each

#: Seconds since a time of the last year, later for a larger number.
_TIME = "{ago}"
_AGO = "31536000.0 - i * 31536000.0 / {count}"
_OWNER = f"1 + i % {USERS}"
_TURN = "'resp_bench' || i"
_STATUS = "CASE WHEN i % 1000 = 0 THEN 'failed' ELSE status END"
_CONVERSATION = "'conv_bench' || i"


@transaction.atomic
def store_rows(conversations: int) -> None:
    turns = conversations * TURNS
    root = User.objects.create_superuser("root", password="none")
    copy_row(root, USERS, id="i + 1", username="'user' || i", is_superuser="FALSE")
    group = Group.objects.create(name="staff")
    copy_row(group, 50, name="'group' || i")
    model = _store_models()
    preset = Preset.objects.create(
        name="letters", label="Letters", language_model=model
    )
    folder = Folder.objects.create(owner=root, name="work")
    copy_row(folder, conversations // 5, name="'folder' || i", owner_id=_OWNER)
    tag = Tag.objects.create(owner=root, name="money")
    copy_row(tag, conversations // 5, name="'tag' || i", owner_id=_OWNER)
    conversation = Conversation.objects.create(
        id="conv_bench0",
        owner=root,
        title="A question about interest",
        language_model=model,
        preset=preset,
        instructions="Answer briefly. " * 50,
    )
    copy_row(
        conversation,
        conversations,
        id=_CONVERSATION,
        title="'Question ' || i",
        owner_id=_OWNER,
        language_model_id=f"1 + i % {MODELS}",
        updated_at=_TIME,
        deleted_at="CASE WHEN i % 50 = 0 THEN updated_at END",
        import_key="NULL",
    )
    _store_turns(conversation, turns)
    _store_around(conversation, conversations, turns)
    with connection.cursor() as cursor:
        # The next rows follow those that were stored with ids.
        for statement in connection.ops.sequence_reset_sql(
            no_style(), [User, AuditEvent]
        ):
            cursor.execute(statement)
        cursor.execute("ANALYZE")


def copy_row(row: models.Model, count: int, **values: str) -> None:
    """Copy the row `count` times. `values` are SQL over `i`, the number of the copy;
    times follow one another over a year."""
    columns, expressions = [], []
    for field in row._meta.concrete_fields:
        name = field.attname
        if (
            field.primary_key
            and name not in values
            and field.get_internal_type()
            in (
                "BigAutoField",
                "AutoField",
            )
        ):
            continue
        if isinstance(field, models.UUIDField):
            values.setdefault(name, random_uuid())
        if name not in values and name in ("created_at", "asked_at", "attempt_time"):
            values[name] = _TIME
        quoted = connection.ops.quote_name(str(field.column))
        columns.append(quoted)
        ago = time_before_now(_AGO.format(count=count))
        expressions.append(values.get(name, quoted).replace(_TIME, ago))
    table = connection.ops.quote_name(row._meta.db_table)
    key = connection.ops.quote_name(str(row._meta.pk.column))
    selected = ", ".join(expressions).replace("%", "%%")  # parameters follow
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO {table} ({', '.join(columns)})"
            f" WITH RECURSIVE {numbers(count)}"
            f" SELECT {selected} FROM n, {table}"
            f" WHERE {table}.{key} = %s",
            [row.pk],
        )


def _store_models() -> LanguageModel:
    provider = Provider.objects.create(name="bench", kind="openai_compatible")
    copy_row(provider, 20, name="'provider' || i")
    ApiKey.objects.create(provider=provider, label="shared", secret="none")
    for number in range(100):  # by the ORM, which encrypts each for its row
        ApiKey.objects.create(
            provider_id=1 + number % 20, label=f"key{number}", secret="none"
        )
    model = LanguageModel.objects.create(provider=provider, name="model")
    names = {"name": "'model' || i", "provider_id": "1 + i % 20", "alias": "NULL"}
    copy_row(model, MODELS, **names)
    tool = Tool.objects.create(name="bench_tool", kind=Tool.Kind.HTTP)
    copy_row(tool, 300, name="'bench_tool' || i")
    return model


def _store_turns(conversation: Conversation, turns: int) -> None:
    turn = Turn.objects.create(
        id="resp_bench0",
        conversation=conversation,
        language_model=conversation.language_model,
        status=Turn.Status.COMPLETED,
        usage={"input_tokens": 1840, "output_tokens": 412},
    )
    copy_row(
        turn,
        turns,
        id=_TURN,
        conversation_id=f"'conv_bench' || ((i - 1) / {TURNS} + 1)",
        language_model_id=f"1 + i % {MODELS}",
        status=_STATUS,
    )
    _store_items(turn, turns)
    _store_model_calls(turn, turns)
    _store_tool_calls(turn, turns)


def _store_items(turn: Turn, turns: int) -> None:
    for place, (role, origin) in enumerate(
        (("user", "input"), ("assistant", "output"))
    ):
        payload = message(role, "It is sunny in Paris, with some clouds. " * 20)
        item = Item.of(turn, place, payload, origin=Item.Origin(origin))
        item.save()
        said = with_id("payload", f"'msg_bench{place}_' || i")
        copy_row(item, turns, turn_id=_TURN, payload=said)


def _store_model_calls(turn: Turn, turns: int) -> None:
    call = ModelCall.objects.create(
        turn_id=turn.pk,
        model=turn.language_model,
        key=ApiKey.objects.first(),
        provider_name="bench",
        model_name="model",
        status=ModelCall.Status.COMPLETED,
        input_tokens=1840,
        output_tokens=412,
        cost="0.0097",
        ttft=0.8,
        latency=7.4,
        request_id="req_bench0",
    )
    copy_row(
        call,
        turns,
        turn_id=_TURN,
        model_id=f"1 + i % {MODELS}",
        request_id="'req_bench' || i",
        response_id="'said_bench' || i",
        our_request_id="'our_bench' || i",
        client_request_id="CASE WHEN i % 10 = 0 THEN 'theirs' || i ELSE '' END",
        status=_STATUS,
    )


def _store_tool_calls(turn: Turn, turns: int) -> None:
    called = ToolCall.objects.create(
        turn=turn,
        call_id="call_bench0",
        name="bench_tool",
        state=ToolCall.State.COMPLETED,
        started_at=turn.created_at,
        ended_at=turn.created_at + timedelta(seconds=2),
        output="sunny",
    )
    copy_row(
        called,
        turns,
        turn_id=_TURN,
        call_id="'call_bench' || i",
        name="'bench_tool' || (i % 300)",
        state=_STATUS.replace("status", "state"),
        late_at="CASE WHEN i % 1000 = 0 THEN ended_at END",
    )
    question = Question.objects.create(
        tool_call=called,
        kind=Question.Kind.APPROVAL,
        state=Question.State.ACCEPTED,
        expires_at=timezone.now(),
        decided_at=timezone.now(),
        decided_by_id=turn.conversation.owner_id,
    )
    ids = {"id": "'q_bench' || i", "tool_call_id": f"1 + i * {TURNS}"}
    copy_row(question, turns // TURNS, **ids)


def _store_around(conversation: Conversation, conversations: int, turns: int) -> None:
    root, now = conversation.owner, timezone.now()
    turn = conversation.turns.earliest("created_at")
    pair = {"conversation_id": _CONVERSATION, "user_id": _OWNER}
    token, _ = AccessToken.issue(root, "script")
    digests = {"digest": "'digest' || i", "user_id": _OWNER}
    copy_row(token, USERS, **digests)
    file = Attachment.objects.create(
        conversation=conversation, name="a.pdf", content_type="application/pdf", size=3
    )
    copy_row(file, conversations, id="'file_bench' || i", conversation_id=_CONVERSATION)
    key = IdempotencyKey.objects.create(user=root, key="k0", fingerprint="f", turn=turn)
    copy_row(key, turns, user_id=_OWNER, key="'k' || i", turn_id=_TURN)
    seen = LastSeen.objects.create(user=root, conversation=conversation, at=now)
    copy_row(seen, conversations, **pair)
    memory = Memory.objects.create(
        user=root, conversation=conversation, text="Likes tea."
    )
    copy_row(memory, conversations, **pair)
    person = Participant.objects.create(
        conversation=conversation, user=root, name="root", invited_by=root
    )
    copy_row(person, conversations, **pair)
    rating = Rating.objects.create(turn=turn, user=root, value="good")
    copy_row(rating, conversations, turn_id=_TURN, user_id=_OWNER)
    link = ShareLink.objects.create(
        conversation=conversation,
        owner=root,
        token_digest="digest0",
        audience="public",
        kind="snapshot",
        last_item=1,
    )
    copy_row(
        link,
        conversations,
        id="'share_bench' || i",
        token_digest="'digest' || i",
        conversation_id=_CONVERSATION,
        owner_id=_OWNER,
        leaf_id="NULL",
    )
    imported = ConversationImport.objects.create(
        owner=root, name="export.json", size=3, format="", state="completed"
    )
    copy_row(imported, USERS, owner_id=_OWNER)
    UserSettings.objects.filter(user=root).delete()
    own, _ = UserSettings.objects.get_or_create(user=root)
    copy_row(own, USERS - 1, user_id="i + 1")
    signs = {"username": "ada", "ip_address": "127.0.0.1", "user_agent": "Firefox"}
    for kind in (AccessLog, AccessFailureLog):
        copy_row(kind.objects.create(**signs, path_info="/login/"), conversations)
    attempt = AccessAttempt.objects.create(
        **signs, path_info="/login/", get_data="", post_data="", failures_since_start=1
    )
    copy_row(attempt, USERS, username="'user' || i")
    _store_audit_log(root, turns)


def _store_audit_log(root: User, count: int) -> None:
    """Events of twelve actions, linked, each with its text."""
    text = AuditText(identity='{"name": "root"}', details='{"after": {"days": 30}}')
    event = AuditEvent.objects.create(
        at=timezone.now(),
        action="bench.act0",
        channel=Channel.ADMIN,
        actor=root.pk,
        target_type="llm.provider",
        target_id="1",
    )
    text.event = event
    text.save()
    copy_row(
        event,
        count,
        id=f"{event.pk} + i",
        at=_TIME,
        action="'bench.act' || (i % 12)",
        actor=_OWNER,
        subject=f"1 + i % {USERS // 2}",
        outcome="CASE WHEN i % 1000 = 0 THEN 'refused' ELSE outcome END",
        target_id="'' || (i % 300)",
        position=f"{event.pk} + i",
    )
    copy_row(text, count, event_id=f"{event.pk} + i")
