"""A deployment as a file: providers with their keys and models, tools, sources of
context and presets, in TOML.

`load` makes the rows that the file names as the file says: a field that it leaves out
gets its default, a row that it leaves out stays as it is. `dump` gives the file that,
loaded, changes nothing. A key's text is never in it, only the name of an environment
variable, as in `secret = "env:OPENAI_API_KEY"`.
"""

from __future__ import annotations

from project.config_file.dumping import dump
from project.config_file.findings import ConfigError, Report
from project.config_file.loading import load

__all__ = ["ConfigError", "Report", "dump", "load"]
