"""A real OpenID Connect provider in a process of its own, and its pages."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Page

from tests.programs import need_program
from tests.serving import free_port
from tests.tools.mcp.servers import installed

SCRIPT = Path(__file__).with_name("oidc_server.mjs")
CLIENT_ID, CLIENT_SECRET = "parley", "secret-of-parley"


class OidcServer:
    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self._file = folder / "people.json"
        self._content: dict[str, Any] = {"redirect_uris": [], "people": {}}

    @property
    def issuer(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def know(self, name: str, /, **claims: Any) -> None:
        """What it says about a person from now on."""
        self._content["people"][name] = claims
        self._file.write_text(json.dumps(self._content))

    def allow(self, redirect_uri: str) -> None:
        """Before its start."""
        self._content["redirect_uris"].append(redirect_uri)
        self._file.write_text(json.dumps(self._content))

    @contextmanager
    def run(self) -> Iterator[None]:
        modules = installed("oidc-provider")
        command = [need_program("node"), SCRIPT, str(self.port), self._file, modules]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        try:
            assert process.stdout
            assert any("ready" in line for line in process.stdout)
            yield
        finally:
            process.kill()
            process.wait()
            if process.stdout:
                process.stdout.close()


def environment(server: OidcServer, **more: str) -> Mapping[str, str]:
    """Of the Parley that uses it."""
    return {
        "OIDC_ISSUER": server.issuer,
        "OIDC_CLIENT_ID": CLIENT_ID,
        "OIDC_CLIENT_SECRET": CLIENT_SECRET,
        "OIDC_LABEL": "Acme",
        **more,
    }


def sign_in_there(page: Page, name: str) -> None:
    """Name and consent on the provider's pages, which take any password."""
    page.locator("input[name=login]").fill(name)
    page.locator("input[name=password]").fill("any")
    page.get_by_role("button", name="Sign-in").click()
    page.get_by_role("button", name="Continue").click()
