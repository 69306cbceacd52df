"""Django's PostgreSQL backend, changed to accept every text that SQLite accepts.

PostgreSQL stores no NUL, and no lone surrogate in JSON; a statement with one fails. The
entry points refuse or sanitize their input. This backend handles the rest (a URL with
%00, a cookie, a field of the admin): a query with such a text finds no row, as on
SQLite, and a stored text has U+FFFD instead.
"""

from __future__ import annotations

import select
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
    is_preparing = False  # the cursor that is being created is `prepared_cursor`

    @cached_property
    def wrap_database_errors(self) -> ErrorWrapper:
        return ErrorWrapper(self)

    def is_usable(self) -> bool:
        """Whether the connection is open. It asks PostgreSQL only where something is
        to be read from the socket: a closed connection has its end there, an open one
        that waits for a statement has nothing, or a notice. So most checks before a
        request's or a turn's first statement send none."""
        connection = self.connection
        if connection is None or connection.closed or connection.broken:
            return False
        socket = select.poll()
        socket.register(connection.fileno(), select.POLLIN)
        return not socket.poll(0) or super().is_usable()

    def prepared_cursor(self) -> Any:
        """A cursor for few different statements that are executed often. It sends their
        parameters apart from the text, so that PostgreSQL parses and plans each text
        once for a connection, not each time."""
        self.is_preparing = True
        try:
            return self.cursor()
        finally:
            self.is_preparing = False

    def create_cursor(self, name: str | None = None) -> Any:
        connection = self.connection
        if not self.is_preparing or connection is None:
            return super().create_cursor(name)
        usual = connection.cursor_factory
        connection.cursor_factory = base.ServerBindingCursor
        try:
            return super().create_cursor(name)
        finally:
            connection.cursor_factory = usual

    def get_new_connection(self, conn_params: Any) -> Any:
        connection = super().get_new_connection(conn_params)
        connection.adapters.register_dumper(str, TextDumper)
        return connection
