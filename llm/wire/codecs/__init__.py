"""The codecs: one file, or group of files, for each wire format."""

from __future__ import annotations
