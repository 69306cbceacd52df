"""Django's PostgreSQL, which takes every text that SQLite takes.

PostgreSQL keeps no NUL, and no half of a surrogate pair in JSON, and a statement that
holds one fails as a whole. Doors refuse or mend what comes from outside. This is for
what no door of ours sees (an address with %00 in it, a cookie, a field of the admin):
it is looked for in vain, as on SQLite, or kept with U+FFFD in its place.
"""

from __future__ import annotations

from typing import Any

from django.db.backends.postgresql import base, operations
from psycopg.types.string import StrDumperUnknown

from llm.wire.mending import mended, mended_json


class TextDumper(StrDumperUnknown):
    def dump(self, obj: str) -> Any:
        return super().dump(mended(obj))


class DatabaseOperations(operations.DatabaseOperations):
    def adapt_json_value(self, value: Any, encoder: Any) -> Any:
        return super().adapt_json_value(mended_json(value), encoder)


class DatabaseWrapper(base.DatabaseWrapper):
    ops_class = DatabaseOperations

    def get_new_connection(self, conn_params: Any) -> Any:
        connection = super().get_new_connection(conn_params)
        connection.adapters.register_dumper(str, TextDumper)
        return connection
