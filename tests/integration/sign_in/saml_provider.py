"""A real SAML identity provider (pysaml2's), with one page that people confirm.

Run as `python -m tests.integration.sign_in.saml_provider PORT FOLDER`: FOLDER has
`key.pem`, `cert.pem`, `sp.xml` (Parley's metadata, read at each request) and
`people.json`: {name: {attribute: [values]}}.
"""

from __future__ import annotations

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from saml2 import BINDING_HTTP_POST, BINDING_HTTP_REDIRECT
from saml2.config import IdPConfig
from saml2.metadata import entity_descriptor
from saml2.saml import NAMEID_FORMAT_PERSISTENT, NameID
from saml2.server import Server

from tests.programs import need_program

DSIG = "http://www.w3.org/2001/04/xmldsig"
PAGE = """<!doctype html><title>Identity provider</title><form method="get">
<input type="hidden" name="SAMLRequest" value="{request}">
<input type="hidden" name="RelayState" value="{relay}">
<label>Name <input name="name"></label><button>Confirm</button></form>"""


def configure(port: int, folder: Path) -> IdPConfig:
    base = f"http://127.0.0.1:{port}"
    sp = folder / "sp.xml"
    config: dict[str, Any] = {
        "entityid": f"{base}/metadata",
        "xmlsec_binary": need_program("xmlsec1"),
        "key_file": str(folder / "key.pem"),
        "cert_file": str(folder / "cert.pem"),
        "metadata": {"local": [str(sp)]} if sp.exists() else {},
        "service": {
            "idp": {
                "endpoints": {
                    "single_sign_on_service": [(f"{base}/sso", BINDING_HTTP_REDIRECT)]
                },
                "policy": {
                    "default": {
                        "name_form": "urn:oasis:names:tc:SAML:2.0:attrname-format:uri",
                        "lifetime": {"minutes": 5},
                    }
                },
                "signing_algorithm": f"{DSIG}-more#rsa-sha256",  # SHA-1 is refused
                "digest_algorithm": "http://www.w3.org/2001/04/xmlenc#sha256",
                "sign_response": True,
                "sign_assertion": True,
            }
        },
    }
    return IdPConfig().load(config)


class Handler(BaseHTTPRequestHandler):
    folder: Path
    port: int

    def do_GET(self) -> None:
        query = {
            key: values[0]
            for key, values in parse_qs(urlsplit(self.path).query).items()
        }
        if self.path == "/metadata":
            self._answer(str(entity_descriptor(configure(self.port, self.folder))))
        elif "name" not in query:
            page = PAGE.format(
                request=query["SAMLRequest"], relay=query.get("RelayState", "")
            )
            self._answer(page)
        else:
            self._answer(self._respond(query))

    def _respond(self, query: dict[str, str]) -> str:
        idp = Server(config=configure(self.port, self.folder))
        asked = idp.parse_authn_request(query["SAMLRequest"], BINDING_HTTP_REDIRECT)
        where = idp.response_args(asked.message)
        name, folder = query["name"], self.folder
        people = json.loads((folder / "people.json").read_text())
        is_forged = name.startswith("forged-")
        response = idp.create_authn_response(
            people[name.removeprefix("forged-")],
            userid=name,
            name_id=NameID(format=NAMEID_FORMAT_PERSISTENT, text=f"id-of-{name}"),
            authn={"class_ref": "urn:oasis:names:tc:SAML:2.0:ac:classes:Password"},
            **where,
        )
        text = str(response)
        if is_forged:  # somebody changes what was signed
            text = text.replace("ada@acme.org", "eve@acme.org")
        made = idp.apply_binding(
            BINDING_HTTP_POST,
            text,
            where["destination"],
            query.get("RelayState", ""),
            response=True,
        )
        return str(made["data"])

    def _answer(self, text: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: Any) -> None:
        pass


if __name__ == "__main__":
    Handler.port, Handler.folder = int(sys.argv[1]), Path(sys.argv[2])
    ThreadingHTTPServer(("127.0.0.1", Handler.port), Handler).serve_forever()
