"""Patterns for valid names and values of HTTP headers.

Source: https://www.rfc-editor.org/rfc/rfc9110#name-field-names
"""

from __future__ import annotations

import re

HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
HEADER_VALUE = re.compile(r"[\x20-\x7e]*")  # accepted by every client and server
