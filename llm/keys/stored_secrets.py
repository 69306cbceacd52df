"""The secrets of a provider's rows, decrypted to be sent, with errors that say who can
mend what cannot be read."""

from __future__ import annotations

from copy import copy

from llm.db.encrypted_field import OriginChanged, SecretUnavailable
from llm.db.revealable_secret import reveal_headers
from llm.errors import InvalidKey
from llm.keys.references import ReferenceRefused, is_reference, read_reference
from llm.keys.token_credentials import compact_key
from llm.models import ApiKey, Provider


def decrypt_key(provider: Provider, key: ApiKey) -> str:
    try:
        return _reveal(provider, with_provider(provider, key))
    except InvalidKey as exc:
        if key.owner_id is None:
            raise
        raise InvalidKey(
            f"Your own key for the provider {provider.name!r} cannot be sent to its"
            ' address; enter it again on the page "Own keys".'
        ) from exc


def with_provider(provider: Provider, key: ApiKey) -> ApiKey:
    """The key with its provider's row as it was read now, whose origin the secret must
    match. Threads share the given one (`CompiledQuery.all_shared`)."""
    key = copy(key)
    key.provider = provider
    return key


def _reveal(provider: Provider, key: ApiKey) -> str:
    if not key.secret:
        raise InvalidKey(
            f"The key {key.label!r} of the provider {provider.name!r} is empty;"
            " ask the staff to enter it."
        )
    try:
        text = str(key.secret.reveal())
        # A person's own key is sent as it is: it names nothing on this server.
        if key.owner_id is None and is_reference(text):
            return compact_key(read_reference(text))
        return text
    except ReferenceRefused as exc:
        raise InvalidKey(
            f"The key {key.label!r} of the provider {provider.name!r} cannot be read"
            " where it is stored; ask the staff to look at it.",
            detail=str(exc),
        ) from exc
    except OriginChanged as exc:
        raise InvalidKey(
            f"The key {key.label!r} of the provider {provider.name!r} was entered for"
            " a different address of the provider and is not sent; ask the staff to"
            " enter it again."
        ) from exc
    except SecretUnavailable as exc:
        raise InvalidKey(
            f"The key {key.label!r} of the provider {provider.name!r} cannot be"
            " decrypted; ask the staff to restore ENCRYPTION_KEYS or enter it again."
        ) from exc


def reveal_secret_headers(provider: Provider) -> dict[str, str]:
    try:
        return reveal_headers(provider.secret_headers)
    except OriginChanged as exc:
        raise InvalidKey(
            f"The secret headers of the provider {provider.name!r} were entered for a"
            " different address and are not sent; ask the staff to enter them again."
        ) from exc
    except SecretUnavailable as exc:
        raise InvalidKey(
            f"The secret headers of the provider {provider.name!r} cannot be"
            " decrypted; ask the staff to restore ENCRYPTION_KEYS or enter them again."
        ) from exc
