"""Proxy, CA, time limits, secret headers and quirks of a provider take effect."""

from __future__ import annotations

import datetime
import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import BaseRequestHandler, ThreadingTCPServer
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from django.core.exceptions import ValidationError

from llm import api
from llm.admin.provider_status import statuses_of
from llm.errors import InvalidKey, LLMError, ProviderDown, ProviderTimeout
from llm.models import LanguageModel, ModelCall, Provider
from llm.pricing.caller import Caller
from llm.sync import key_check
from tests.llm.probing.host import ProbedHost

pytestmark = pytest.mark.django_db

VALUE = "wk-secret-header-0123456789"


def provider(base_url: str, **fields: Any) -> Provider:
    row = Provider(
        name="Fake",
        kind="openai_compatible",
        base_url=base_url,
        allow_private_network=fields.pop("allow_private_network", True),
        **fields,
    )
    row.full_clean()
    row.save()
    row.models.create(name="m", options={"retry": {"attempts": 1}})
    return row


def ask() -> str:
    return api.generate_sync("Fake/m", "Say OK.").text


# A proxy


@contextmanager
def proxy(
    status: int = 200, message: str = "by proxy"
) -> Iterator[tuple[str, list[str]]]:
    """Its address, and the URLs that were asked of it; it answers them itself."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *args: Any) -> None:
            pass

        def do_CONNECT(self) -> None:
            self.send_error(501 if status == 200 else status)

        def do_POST(self) -> None:
            asked.append(self.path)
            self.rfile.read(int(self.headers["Content-Length"]))
            said = {"role": "assistant", "content": message}
            choice = {"index": 0, "message": said, "finish_reason": "stop"}
            body = {"id": "c", "model": "m", "choices": [choice]}
            if status != 200:
                body = {"error": {"message": message, "code": "overloaded"}}
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(json.dumps(body).encode())

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", asked
    server.shutdown()
    server.server_close()


def test_requests_go_through_the_proxy_which_may_be_private():
    with proxy() as (address, asked):
        provider(
            "http://models.invalid/v1", proxy_url=address, allow_private_network=False
        )
        assert ask() == "by proxy"
    assert asked == ["http://models.invalid/v1/chat/completions"]


def test_a_proxy_does_not_open_private_addresses():
    with proxy() as (address, asked):
        provider("http://10.0.0.7/v1", proxy_url=address, allow_private_network=False)
        with pytest.raises(LLMError, match="private network"):
            ask()
    assert asked == []


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_proxy_that_is_not_there_is_named_in_place_of_the_host(scheme: str):
    with socket.create_server(("127.0.0.1", 0)) as closed:
        address = f"http://127.0.0.1:{closed.getsockname()[1]}"
    row = provider(f"{scheme}://models.invalid/v1", proxy_url=address)
    with pytest.raises(ProviderDown) as caught:
        ask()
    assert caught.value.detail == "The proxy cannot be reached."
    [finding] = key_check.probe(row, Caller())
    assert f"does not answer through the proxy {address}." in finding.text


def test_a_proxy_that_refuses_is_named_with_its_status():
    with proxy() as (address, _asked):
        provider("https://models.invalid/v1", proxy_url=address)
        with pytest.raises(ProviderDown) as caught:
            ask()
    assert "The proxy answers with HTTP 501." in str(caught.value.detail)


def test_a_proxy_without_an_address_is_named_in_place_of_the_host():
    provider("https://models.invalid/v1", proxy_url="http://proxy.invalid:3128")
    with pytest.raises(ProviderDown) as caught:
        ask()
    assert caught.value.detail == "The proxy cannot be reached."


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_proxy_that_wants_a_password_is_named(scheme: str):
    with proxy(status=407) as (address, _asked):
        row = provider(f"{scheme}://models.invalid/v1", proxy_url=address)
        with pytest.raises(ProviderDown) as caught:
            ask()
        assert caught.value.detail == "The proxy answers with HTTP 407."
        [finding] = key_check.probe(row, Caller())
    assert finding.problem == "unreachable"
    assert finding.text.endswith(" The proxy answers with HTTP 407.")
    assert statuses_of([row])[row.pk].text.endswith("The proxy answers with HTTP 407.")


def test_a_host_that_answers_like_a_proxy_is_not_quoted_in_the_light():
    with proxy(status=407, message="Overloaded by: my diary") as (address, _asked):
        row = provider(f"{address}/v1")
        with pytest.raises(ProviderDown):
            ask()
    assert "diary" in ModelCall.objects.get().error_detail
    text = statuses_of([row])[row.pk].text
    assert text.endswith("(HTTP 407)")
    assert "diary" not in text


def test_a_proxy_has_no_password_in_its_address():
    with pytest.raises(ValidationError, match="Leave out user and password"):
        provider("http://models.invalid/v1", proxy_url="http://u:p@proxy.test:3128")


# CA certificates


def self_signed(
    folder: Path, host: str = "localhost", days: int = 1
) -> tuple[Path, str]:
    """A file with key and certificate, which is valid for `days` from now, and
    the certificate."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=9))
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(
            x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = certificate.public_bytes(serialization.Encoding.PEM)
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    file = folder / "server.pem"
    file.write_bytes(private + pem)
    return file, pem.decode()


@pytest.mark.parametrize("is_known", [True, False])
def test_a_certificate_is_accepted_if_the_providers_ca_signed_it(
    tmp_path: Path, is_known: bool
):
    file, pem = self_signed(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    with ProbedHost().listening(context) as base_url:
        address = base_url.replace("http://127.0.0.1", "https://localhost")
        provider(address, ca_certificates=pem if is_known else "")
        if is_known:
            assert ask() == "OK"
        else:
            with pytest.raises(ProviderDown) as caught:
                ask()
            assert "an authority that is unknown here" in caught.value.detail


@pytest.mark.parametrize(
    ("certificate", "problem"),
    [
        ({"days": -1}, "the server's certificate has expired."),
        ({"host": "a.test"}, "the server's certificate is for another host name."),
        ({}, "the server does not speak TLS here, or no version that is accepted."),
    ],
)
def test_what_is_wrong_with_a_secure_connection_is_told_to_staff(
    tmp_path: Path, certificate: dict[str, Any], problem: str
):
    file, pem = self_signed(tmp_path, **certificate)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    with ProbedHost().listening(context if certificate else None) as base_url:
        address = base_url.replace("http://127.0.0.1", "https://localhost")
        row = provider(address, ca_certificates=pem)
        with pytest.raises(ProviderDown):
            ask()
        [finding] = key_check.probe(row, Caller())
    words = f"No secure connection: {problem}"
    assert finding.text == f"unreachable: {address} does not answer. {words}"
    assert statuses_of([row])[row.pk].text.endswith(f": {words}")


@contextmanager
def listening(answer: Callable[[socket.socket], None]) -> Iterator[int]:
    """The port; each connection is answered once."""

    class Handler(BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(65_536)
            answer(self.request)

    server = ThreadingTCPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield server.server_address[1]
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(
    ("alert", "problem"),
    [
        (70, "the server does not speak TLS here, or no version that is accepted."),
        (40, "the TLS handshake with the server failed."),
        (112, "the TLS handshake with the server failed."),  # no such name here
    ],
)
def test_an_alert_of_tls_is_not_taken_for_a_lack_of_it(alert: int, problem: str):
    record = bytes([21, 3, 3, 0, 2, 2, alert])  # RFC 5246, 7.2: fatal
    with listening(lambda client: client.sendall(record)) as port:
        row = provider(f"https://localhost:{port}/v1")
        with pytest.raises(ProviderDown) as caught:
            ask()
    assert caught.value.detail == f"No secure connection: {problem}"
    assert statuses_of([row])[row.pk].text.endswith(f": {caught.value.detail}")


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_bad_certificate_of_the_proxy_is_not_said_to_be_the_servers(
    tmp_path: Path, scheme: str
):
    file, pem = self_signed(tmp_path, days=-1)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    with ProbedHost().listening(context) as url:
        proxy_url = url.replace("http://127.0.0.1", "https://localhost")
        provider(
            f"{scheme}://models.invalid/v1",
            proxy_url=proxy_url.removesuffix("/v1"),
            ca_certificates=pem,
        )
        with pytest.raises(ProviderDown) as caught:
            ask()
    problem = "the proxy's certificate has expired."
    assert caught.value.detail == f"No secure connection: {problem}"


def test_a_bad_certificate_behind_a_proxy_is_the_servers(tmp_path: Path):
    file, pem = self_signed(tmp_path, days=-1)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)

    def open_tunnel(client: socket.socket) -> None:
        client.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        with suppress(ssl.SSLError, ConnectionError):  # the certificate is refused
            context.wrap_socket(client, server_side=True)

    with listening(open_tunnel) as port:
        provider(
            "https://localhost/v1",
            proxy_url=f"http://localhost:{port}",
            ca_certificates=pem,
        )
        with pytest.raises(ProviderDown) as caught:
            ask()
    problem = "the server's certificate has expired."
    assert caught.value.detail == f"No secure connection: {problem}"


def test_only_certificates_are_taken(tmp_path: Path):
    with pytest.raises(ValidationError, match="PEM"):
        provider("https://a.test/v1", ca_certificates="nonsense")
    file, _ = self_signed(tmp_path)
    with pytest.raises(ValidationError, match="Leave out the private key"):
        provider("https://a.test/v1", ca_certificates=file.read_text())


# Time limits


@pytest.mark.parametrize(
    ("column", "detail"),
    [
        ("first_byte_timeout", "No answer within 0.2 s."),
        ("total_timeout", "Not finished within 0.2 s."),
    ],
)
def test_a_providers_time_limits_count(column: str, detail: str):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        provider(f"http://127.0.0.1:{port}/v1", **{column: 0.2})
        with pytest.raises(ProviderTimeout) as caught:
            ask()
    assert caught.value.detail == detail
    row = Provider.objects.get()
    assert statuses_of([row])[row.pk].text.endswith(f": {detail}")


# Secret headers


def test_secret_headers_are_sent_and_stored_encrypted():
    host = ProbedHost()
    with host.listening() as base_url:
        row = provider(base_url)
        row.set_secret_headers({"X-Gateway-Token": VALUE})
        row.save()
        assert ask() == "OK"
    assert host.headers[0]["X-Gateway-Token"] == VALUE
    stored = Provider.objects.values_list("secret_headers", flat=True).get()
    assert VALUE not in repr(stored)


def test_secret_headers_are_not_sent_to_another_address():
    host = ProbedHost()
    with host.listening() as base_url:
        row = provider("https://before.example/v1")
        row.set_secret_headers({"X-Gateway-Token": VALUE})
        row.save()
        row.base_url = base_url
        row.save()
        with pytest.raises(InvalidKey, match="entered for a different address"):
            ask()
    assert host.requests == []
    assert "X-Gateway-Token: Not sent" in Provider.objects.get().secrets_not_sent[0]


@pytest.mark.parametrize(
    ("name", "scheme"),
    [("X-Gateway-Token", ""), ("X-Key", "ApiKey "), ("Authorization", "Acme-V2 ")],
)
def test_a_host_that_quotes_a_secret_header_does_not_bring_it_into_a_row(
    name: str, scheme: str
):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        row = provider(f"http://127.0.0.1:{port}/v1")
        row.set_secret_headers({name: scheme + VALUE})
        row.save()

        def refuse() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(65_536)
                body = b'{"error": {"message": "unknown token %s"}}' % VALUE.encode()
                head = b"HTTP/1.1 400 Bad\r\nContent-Length: %d\r\n\r\n" % len(body)
                connection.sendall(head + body)

        server.settimeout(10)
        thread = threading.Thread(target=refuse)
        thread.start()
        with pytest.raises(LLMError):
            ask()
        thread.join()
    detail = ModelCall.objects.get().error_detail
    assert "unknown token" in detail
    assert VALUE not in detail


# Quirks


@pytest.mark.parametrize(
    ("quirks", "present", "absent"),
    [
        ({}, "max_tokens", "max_completion_tokens"),
        ({"max_completion_tokens": True}, "max_completion_tokens", "max_tokens"),
        ({"stream_options": False}, "messages", "stream_options"),
    ],
)
def test_a_quirk_changes_the_request(
    quirks: dict[str, bool], present: str, absent: str
):
    host = ProbedHost()
    with host.listening() as base_url:
        provider(base_url, options={"quirks": quirks} if quirks else {})
        LanguageModel.objects.update(max_output_tokens=50)
        ask()
    assert present in host.requests[0]
    assert absent not in host.requests[0]


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        ("openai_compatible", {"quirks": {"none": True}}, "There is no quirk 'none'"),
        ("openai_compatible", {"quirks": {"files": 1}}, "must be true or false"),
        ("openai_compatible", {"quirks": []}, "must be an object"),
        ("anthropic", {"quirks": {"files": True}}, "has no option 'quirks'"),
    ],
)
def test_wrong_quirks_are_refused(kind: str, options: dict, message: str):
    row = Provider(name="x", kind=kind, base_url="https://a.test", options=options)
    with pytest.raises(ValidationError, match=message):
        row.full_clean()
