"""LiteLLM's proxy, if installed: one process, no database, as its documentation says.

Parley does not require it: install it into a separate environment
(`pip install "litellm[proxy]"`) and set `PEERS` to that environment's Python.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile

import orjson

from benchmarks.dataset import MODELS
from benchmarks.processes import program
from benchmarks.servers_under_test import Endpoint, chat_endpoint
from tests.serving import free_port

PATIENCE = 180  # seconds until it listens
#: LiteLLM downloads nothing and logs no request.
_QUIET = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_LOG": "ERROR",
    "LITELLM_MODE": "PRODUCTION",
}


@contextmanager
def litellm(upstream_port: int) -> Iterator[list[Endpoint]]:
    """Start LiteLLM; yield its endpoint, or nothing if it is not installed."""
    peers = os.environ.get("PEERS")
    command = Path(peers).with_name("litellm") if peers else None
    if command is None or not command.is_file():
        print("LiteLLM is not measured: PEERS names no Python that has it.\n")
        yield []
        return
    port, key = free_port(), f"sk-{secrets.token_urlsafe(24)}"
    with NamedTemporaryFile(suffix=".yaml") as config:
        config.write(orjson.dumps(_config(upstream_port, key)))  # JSON is YAML
        config.flush()
        where = ["--host", "127.0.0.1", "--port", str(port)]
        started = [str(command), "--config", config.name, "--num_workers", "1", *where]
        with program(started, port, patience=PATIENCE, env=_QUIET) as pid:
            yield [chat_endpoint("LiteLLM", pid, port, key)]


def _config(upstream_port: int, key: str) -> dict[str, object]:
    params = {"api_base": f"http://127.0.0.1:{upstream_port}/v1", "api_key": "sk-none"}
    names = [f"bench-{name}" for name in MODELS]
    models = [
        {"model_name": name, "litellm_params": {"model": f"openai/{name}", **params}}
        for name in names
    ]
    general = {"master_key": key, "disable_spend_logs": True}
    quiet = {"telemetry": False}
    return {
        "model_list": models,
        "litellm_settings": quiet,
        "general_settings": general,
    }
