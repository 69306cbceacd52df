"""Django's PostgreSQL backend, changed to accept every text that SQLite accepts.

PostgreSQL stores no NUL, and no lone surrogate in JSON; a statement with one fails. The
entry points refuse or sanitize their input. This backend handles the rest (a URL with
%00, a cookie, a field of the admin): a query with such a text finds no row, as on
SQLite, and a stored text has U+FFFD instead.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import orjson
from django.db.backends.postgresql import base, operations
from django.db.utils import DatabaseErrorWrapper, InternalError, OperationalError
from django.utils.functional import cached_property
from psycopg.adapt import Dumper
from psycopg.errors import IdleInTransactionSessionTimeout
from psycopg.types.json import Jsonb

from llm.wire.sanitize import replace_nul, sanitize_json, sanitize_text


class TextDumper(Dumper):
    def dump(self, obj: str) -> bytes:
        return sanitize_text(obj).encode()


class DatabaseOperations(operations.DatabaseOperations):
    def adapt_json_value(self, value: Any, encoder: Any) -> Any:
        """Encode before the statement: psycopg would encode while it sends it, within
        the transaction, and a large value takes long."""
        if encoder is None:
            with suppress(TypeError):  # e.g. a lone surrogate, a number above 64 bits
                encoded = replace_nul(orjson.dumps(value))
                return Jsonb(value, dumps=lambda _: encoded)
        return super().adapt_json_value(sanitize_json(value), encoder)


class ErrorWrapper(DatabaseErrorWrapper):
    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: Any,
    ) -> None:
        """Report a transaction's idle timeout as an outage: PostgreSQL has closed the
        connection, as it does at its own shutdown."""
        try:
            super().__exit__(exc_type, exc_value, traceback)
        except InternalError:
            if isinstance(exc_value, IdleInTransactionSessionTimeout):
                raise OperationalError(*exc_value.args) from exc_value
            raise


class DatabaseWrapper(base.DatabaseWrapper):
    ops_class = DatabaseOperations

    @cached_property
    def wrap_database_errors(self) -> ErrorWrapper:
        return ErrorWrapper(self)

    def get_new_connection(self, conn_params: Any) -> Any:
        connection = super().get_new_connection(conn_params)
        connection.adapters.register_dumper(str, TextDumper)
        return connection
