"""Django's PostgreSQL, which takes every text that SQLite takes.

PostgreSQL keeps no NUL, and no half of a surrogate pair in JSON, and a statement that
holds one fails as a whole. Doors refuse or mend what comes from outside. This is for
what no door of ours sees (an address with %00 in it, a cookie, a field of the admin):
it is looked for in vain, as on SQLite, or kept with U+FFFD in its place.
"""

from __future__ import annotations

from typing import Any

import orjson
from django.db.backends.postgresql import base, operations
from django.db.utils import DatabaseErrorWrapper, OperationalError
from django.utils.functional import cached_property
from psycopg.errors import IdleInTransactionSessionTimeout
from psycopg.types.json import Jsonb
from psycopg.types.string import StrDumperUnknown

from llm.wire.mending import mended, mended_json, without_nul


class TextDumper(StrDumperUnknown):
    def dump(self, obj: str) -> Any:
        return super().dump(mended(obj))


class DatabaseOperations(operations.DatabaseOperations):
    def adapt_json_value(self, value: Any, encoder: Any) -> Any:
        """Encoded here and now: psycopg does it while the statement is sent, in the
        middle of a transaction, and what is long takes its time."""
        told: str | bytes
        try:
            told = without_nul(orjson.dumps(value)) if encoder is None else ""
        except TypeError:  # half a letter, say, or a number that is too large
            told = ""
        if not told:
            value = mended_json(value)
            told = operations.get_json_dumps(encoder)(value)
        return Jsonb(value, dumps=lambda _: told)


class Errors(DatabaseErrorWrapper):
    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: Any,
    ) -> None:
        """A transaction that stood still is no fault of ours: PostgreSQL has ended the
        connection, as where it goes down itself."""
        if isinstance(exc_value, IdleInTransactionSessionTimeout):
            self.wrapper.errors_occurred = True  # type: ignore[attr-defined]
            raise OperationalError(*exc_value.args) from exc_value
        super().__exit__(exc_type, exc_value, traceback)


class DatabaseWrapper(base.DatabaseWrapper):
    ops_class = DatabaseOperations

    @cached_property
    def wrap_database_errors(self) -> Errors:
        return Errors(self)

    def get_new_connection(self, conn_params: Any) -> Any:
        connection = super().get_new_connection(conn_params)
        connection.adapters.register_dumper(str, TextDumper)
        return connection
