"""The rows whose changes the audit log records, and how it reads their secrets."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import Group, User
from django.db import models

from conversations.audit.act import Act, Channel, acting
from conversations.audit.record import record_event
from conversations.audit.watch import Watched, leave_out, name_area, watch
from conversations.models import (
    AccessToken,
    Announcement,
    ContextSource,
    LimitRaise,
    Maintenance,
    Participant,
    Preset,
    PresetSource,
    RetentionRule,
    ShareLink,
    ShareRule,
    TermsVersion,
    UsageLimit,
    WebhookEndpoint,
)
from llm.db.bound_secrets import SecretUnavailable
from llm.db.encrypted_field import Secret
from llm.db.secret_rows import list_encrypted_columns
from llm.models import (
    ApiKey,
    LanguageModel,
    ModelPool,
    ModelPrice,
    PoolMember,
    Provider,
)
from llm.models.api_key import OwnKey, keys_disabled
from tools.models import HttpTool, McpServer, McpTool, Tool
from tools.models.declared_tool import DeclaredTool

#: Configuration, with the columns that are state.
_CONFIGURATION: dict[type[models.Model], tuple[str, ...]] = {
    Provider: ("secret_id", "created_at"),
    LanguageModel: (
        "probed_capabilities",
        "probed_at",
        "probed_target",
        "listed_values",
        "overridden_at",
        "created_at",
    ),
    ModelPrice: ("created_at",),
    ModelPool: (),
    PoolMember: (),
    Tool: ("is_missing", "created_at"),
    HttpTool: ("secret_id",),
    McpServer: (
        *("secret_id", "is_missing", "listing", "listed_at", "about", "error"),
        "startup_output",
        *("sign_in", "signed_in_until", "sign_in_renews", "renewing_until"),
        "created_at",
    ),
    McpTool: (),
    DeclaredTool: (),
    ContextSource: ("secret_id", "created_at", "updated_at"),
    Preset: ("created_at",),
    PresetSource: (),
    Maintenance: ("changed_at",),
    ShareRule: (),
    RetentionRule: (),
    Announcement: ("created_at",),
    TermsVersion: ("created_at",),
}
#: Of keys: what the engine writes while it uses them, and what is derived.
_KEY_STATE = (
    *("secret_id", "fingerprint", "rest_until", "model_rests", "state_reason"),
    *("state_changed_at", "last_used_at", "last_error", "created_at"),
)

#: Rows with people's words, whose content is never recorded.
_CONTENT = (
    *("conversation", "turn", "item", "toolcall", "question", "attachment", "memory"),
    *("folder", "tag", "savedprompt", "usersettings", "rating", "conversationimport"),
)


def watch_rows() -> None:
    name_area("content", (f"conversations.{name}" for name in _CONTENT))
    leave_out(["conversations.legalhold"])
    for model, ignored in _CONFIGURATION.items():
        _watch(model, "config", ignored)
    for key in (ApiKey, OwnKey):
        _watch(key, "key", _KEY_STATE, lambda row: row.owner_id)
    _watch(
        AccessToken,
        "token",
        ("digest", "last_used_at", "created_at"),
        lambda row: row.user_id,
    )
    _watch(
        ShareLink,
        "share",
        ("secret_id", "token", "token_digest", "title", "views", "created_at"),
        lambda row: row.owner_id,
    )
    # The name that was invited is a person's.
    _watch(
        Participant,
        "share",
        ("name", "created_at"),
        lambda row: row.conversation.owner_id,
    )
    for limit in (UsageLimit, LimitRaise):
        _watch(limit, "budget", ("created_at",), lambda row: row.user_id)
    _watch(
        WebhookEndpoint,
        "config",
        (
            *("secret_id", "last_success_at", "last_failure_at", "last_error"),
            *("failures", "failing_since", "created_at"),
            *("previous_secret", "previous_secret_until"),
        ),
        lambda row: row.owner_id,
    )
    hashes = {"password": str}
    user = Watched(
        area="user",
        ignored=frozenset({"last_login", "date_joined"}),
        secrets=hashes,
        find_subject=lambda row: row.pk,
    )
    watch(User, user)
    watch(Group, Watched(area="user"))
    keys_disabled.connect(_record_disabled_keys)


def _watch(
    model: type[models.Model],
    area: str,
    ignored: tuple[str, ...],
    find_subject: Any = lambda row: None,
) -> None:
    columns = [column.attname for column in list_encrypted_columns(model)]
    secrets = {name: reveal_secret for name in columns if name not in ignored}
    watch(
        model,
        Watched(
            area=area,
            ignored=frozenset(ignored),
            secrets=secrets,
            find_subject=find_subject,
        ),
    )


def reveal_secret(secret: Secret | str) -> str:
    """The text to fingerprint; of a secret that cannot be decrypted its stored form."""
    if isinstance(secret, str):
        return secret
    try:
        return secret.reveal()
    except SecretUnavailable:
        return secret.stored


def _record_disabled_keys(*, pks: list[int], reason: str, **_: Any) -> None:
    """A receiver of `keys_disabled`: a provider has refused these keys."""
    after = {"state": ApiKey.State.DISABLED.value}
    with acting(Act(channel=Channel.SYSTEM)):
        for pk in pks:
            record_event(
                "key.change", target=("llm.apikey", pk), after=after, reason=reason
            )
