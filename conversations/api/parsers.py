"""JSON parser of the REST API, with limits on size, depth and number of values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import IO, Any

import orjson
from django.conf import settings
from rest_framework.exceptions import ParseError
from rest_framework.parsers import BaseParser

from conversations.api.errors import PayloadTooLarge
from conversations.input.checks import (
    MAX_DEPTH,
    InputError,
    check_no_nul,
    is_deeper,
)
from conversations.requests.errors import InvalidInput
from llm.wire import bounded_json


class JSONParser(BaseParser):
    """Parses JSON objects that can be stored and sent on.

    It refuses lone surrogates, NUL, NaN, deep nesting and large bodies; DRF's own
    parser reads a body of any size.
    """

    media_type = "application/json"

    def parse(
        self,
        stream: IO[bytes],
        media_type: str | None = None,
        parser_context: Mapping[str, Any] | None = None,
    ) -> Any:
        limit = settings.DATA_UPLOAD_MAX_MEMORY_SIZE
        body = stream.read(limit + 1)
        if len(body) > limit:
            raise PayloadTooLarge(f"A request may be at most {limit} bytes long.")
        try:
            data = bounded_json.loads(body)
        except bounded_json.TooManyValues as exc:
            raise PayloadTooLarge(f"The request is too large: {exc.msg}.") from exc
        except orjson.JSONDecodeError as exc:
            raise ParseError(f"The body is not valid JSON: {exc}.") from exc
        if not isinstance(data, dict):
            raise ParseError("The body must be a JSON object.")
        if is_deeper(data):
            raise ParseError(f"The body is nested more than {MAX_DEPTH} levels deep.")
        try:
            check_no_nul(data, body)
        except InputError as exc:
            raise InvalidInput(exc) from exc
        return data
