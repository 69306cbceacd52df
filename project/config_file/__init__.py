"""Configuration file in TOML: providers with keys and models, tools, context sources,
presets.

`load` creates or updates the rows that the file contains. It sets omitted fields to
their defaults, and leaves rows alone that are not in the file. `dump` writes the file
that changes nothing when loaded. Secrets are not in it, only names of environment
variables, as in `secret = "env:OPENAI_API_KEY"`.
"""

from __future__ import annotations

from project.config_file.dumping import dump, dump_text
from project.config_file.findings import ConfigError, Report
from project.config_file.loading import load

__all__ = ["ConfigError", "Report", "dump", "dump_text", "load"]
