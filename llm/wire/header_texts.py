"""What the name and the value of an HTTP header may be made of.

Source: https://www.rfc-editor.org/rfc/rfc9110#name-field-names
"""

from __future__ import annotations

import re

HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
HEADER_VALUE = re.compile(r"[\x20-\x7e]*")  # all that every client and server takes
