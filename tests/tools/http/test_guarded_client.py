from __future__ import annotations

import asyncio
import gzip
import socket
import ssl
from datetime import UTC, datetime, timedelta
from ipaddress import ip_network

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tests.tools.servers import Server, answer, ok, redirect, serving
from tools.errors import (
    AddressRefused,
    AnswerTooLarge,
    BrokenAnswer,
    FetchError,
    FetchTimeout,
    Unreachable,
)
from tools.http import guarded_client
from tools.http.exchange import Limits, OutgoingRequest
from tools.http.guarded_client import fetch

LOOPBACK = [ip_network("127.0.0.0/8"), ip_network("::1")]


def names(**known: str | list[str]):
    """A resolver for these names; of a list, each call gets the next entry."""
    answers_left = {
        name: iter(v) if isinstance(v, list) else None for name, v in known.items()
    }

    async def resolve(host: str, port: int) -> list[str]:
        name = host.partition(".")[0]
        if name not in known:
            raise socket.gaierror(socket.EAI_NONAME, "unknown")
        answers = answers_left[name]
        return [known[name] if answers is None else next(answers)]

    return resolve


async def get(url: str, **options):
    options.setdefault("allow", LOOPBACK)
    return await fetch(OutgoingRequest(url=url), **options)


# What is refused

NOT_PUBLIC = {
    "loopback": "127.0.0.1",
    "loopback elsewhere": "127.8.9.1",
    "nowhere": "0.0.0.0",
    "private 10": "10.1.2.3",
    "private 172": "172.31.255.255",
    "private 192": "192.168.0.1",
    "CGNAT": "100.64.0.1",
    "link-local": "169.254.1.1",
    "metadata": "169.254.169.254",
    "metadata of Azure": "168.63.129.16",
    "metadata of Alibaba": "100.100.100.200",
    "metadata of Oracle": "192.0.0.192",
    "benchmarks": "198.18.0.1",
    "documentation": "203.0.113.9",
    "multicast": "224.0.0.1",
    "reserved": "240.0.0.1",
    "broadcast": "255.255.255.255",
    "IPv6 loopback": "::1",
    "IPv6 nowhere": "::",
    "IPv6 link-local": "fe80::1",
    "IPv6 link-local of a network card": "fe80::1%eth0",
    "IPv6 site-local": "fec0::1",
    "IPv6 unique local": "fc00::1",
    "IPv6 metadata": "fd00:ec2::254",
    "IPv6 multicast": "ff02::1",
    "IPv6 documentation": "2001:db8::1",
    "IPv4-mapped": "::ffff:127.0.0.1",
    "IPv4-mapped, of a public address": "::ffff:8.8.8.8",
    "IPv4-compatible": "::127.0.0.1",
    "6to4": "2002:7f00:1::",
    "Teredo": "2001:0:7f00:1::",
    "NAT64": "64:ff9b::7f00:1",
    "local NAT64": "64:ff9b:1::7f00:1",
}


@pytest.mark.parametrize("address", NOT_PUBLIC.values(), ids=NOT_PUBLIC.keys())
async def test_only_public_addresses_are_connected_to(address: str):
    host = f"[{address.replace('%', '%25')}]" if ":" in address else address
    with pytest.raises(AddressRefused, match="private or reserved network"):
        await get(f"http://{host}/", allow=[])


@pytest.mark.parametrize("address", NOT_PUBLIC.values(), ids=NOT_PUBLIC.keys())
async def test_nor_is_a_name_that_leads_to_it(address: str):
    with pytest.raises(AddressRefused, match="private or reserved network"):
        await get("http://inside.test/", allow=[], resolve=names(inside=address))


@pytest.mark.parametrize(
    "host",
    [
        "2130706433",  # decimal
        "0x7f000001",
        "0x7f.0.0.1",
        "127.0.0.0x1",
        "0177.0.0.1",  # octal
        "127.0.0.01",
        "017700000001",
        "127.1",
        "127.0.1",
        "0",
        "127.0.0.1.",
        "256.256.256.256",
        "1.2.3.4.5",
    ],
)
async def test_an_address_in_an_odd_spelling_is_refused(host: str):
    """Even if its network is allowed: such spellings are used to hide an address."""
    with pytest.raises(AddressRefused, match="unusual notation"):
        await get(f"http://{host}/")


@pytest.mark.parametrize(
    "host",
    [
        "127\u30020\u30020\u30021",
        "\uff11\uff12\uff17.0.0.1",
        "\u2460\u2461\u2466.0.0.1",
    ],
)
async def test_other_alphabets_hide_nothing(host: str):
    with pytest.raises(AddressRefused):
        await get(f"http://{host}/", allow=[])


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("ftp://example.test/", "only http and https"),
        ("file:///etc/passwd", "only http and https"),
        ("gopher://example.test/", "only http and https"),
        ("//example.test/", "only http and https"),
        ("/path", "only http and https"),
        ("http://", "not a URL|only http and https"),
        ("http://[::1", "not a valid URL"),
        ("http://host:port/", "not a valid URL"),
        ("http://user:secret@example.test/", "user name"),
        ("http://user@example.test/", "user name"),
    ],
)
async def test_only_plain_web_addresses_are_connected_to(url: str, why: str):
    with pytest.raises(AddressRefused, match=why):
        await get(url)


async def test_one_bad_address_among_good_ones_is_one_too_many():
    async def resolve(host: str, port: int) -> list[str]:
        return ["93.184.216.34", "10.0.0.1"]

    with pytest.raises(AddressRefused):
        await get("http://mixed.test/", allow=[], resolve=resolve)


async def test_the_real_resolver_is_not_trusted_either():
    with pytest.raises(AddressRefused):
        await get("http://localhost:9/", allow=[])


# What is allowed


async def test_an_allowed_network_is_connected_to():
    async with serving(ok(b"hello", "text/plain; charset=latin-1")) as server:
        fetched = await get(server.url())
    assert (fetched.status, fetched.body) == (200, b"hello")
    assert (fetched.content_type, fetched.charset) == ("text/plain", "latin-1")


async def test_its_neighbour_is_not():
    async with serving(ok()) as server:
        await get(server.url(), allow=[ip_network("127.0.0.1/32")])
        with pytest.raises(AddressRefused):
            await get(server.url(), allow=[ip_network("127.0.0.2/32")])
    assert len(server.requests) == 1


#: By which a system or a gateway reaches 169.254.169.254.
EMBEDDED_METADATA = [
    "::ffff:169.254.169.254",
    "::ffff:0:169.254.169.254",
    "::169.254.169.254",
    "64:ff9b::169.254.169.254",
    "64:ff9b:1::169.254.169.254",
    "2002:a9fe:a9fe::1",
]


@pytest.mark.parametrize("network", ["169.254.0.0/16", "0.0.0.0/0", "169.254.169.254"])
async def test_metadata_must_be_allowed_by_its_very_address(network: str, monkeypatch):
    tried = []

    async def connect(request, url, addresses, limits):
        tried.extend(addresses)
        raise Unreachable

    monkeypatch.setattr(guarded_client, "_send", connect)
    error = Unreachable if network == "169.254.169.254" else AddressRefused
    with pytest.raises(error):
        await get("http://169.254.169.254/", allow=[ip_network(network)])
    assert bool(tried) == (error is Unreachable)


@pytest.mark.parametrize("host", EMBEDDED_METADATA)
async def test_a_wide_network_does_not_contain_metadata_within_ipv6(
    host: str, monkeypatch
):
    async def connect(request, url, addresses, limits):
        raise Unreachable

    monkeypatch.setattr(guarded_client, "_send", connect)
    with pytest.raises(AddressRefused):
        await get(f"http://[{host}]/", allow=[ip_network("::/0")])
    with pytest.raises(Unreachable):
        await get(f"http://[{host}]/", allow=[ip_network(host)])


async def test_the_checked_address_is_the_one_connected_to():
    """DNS rebinding: a name is resolved only once."""
    resolved: list[str] = []

    async def resolve(host: str, port: int) -> list[str]:
        resolved.append(host)
        return ["127.0.0.2"] if len(resolved) == 1 else ["127.0.0.1"]

    async with (
        serving(ok(b"outside"), host="127.0.0.2") as outside,
        serving(ok(b"inside"), host="127.0.0.1", port=outside.port) as inside,
    ):
        url = outside.url(host="rebinding.test")
        fetched = await get(url, allow=[ip_network("127.0.0.2")], resolve=resolve)
    assert fetched.body == b"outside"
    assert resolved == ["rebinding.test"]
    assert inside.requests == []
    assert f"Host: rebinding.test:{outside.port}\r\n" in outside.requests[0]


def certificate(path, name: str):
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), False)
        .sign(key, hashes.SHA256())
    )
    pem = made.public_bytes(serialization.Encoding.PEM) + key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    path.write_bytes(pem)
    return path


async def test_tls_is_with_the_name_and_not_with_the_address(tmp_path, monkeypatch):
    pem = certificate(tmp_path / "tool.pem", "tool.test")
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(pem)
    server_names: list[str | None] = []
    tls.sni_callback = lambda _socket, name, _context: server_names.append(name)
    trusted = ssl.create_default_context(cafile=str(pem))
    monkeypatch.setattr(guarded_client, "ssl_context", lambda: trusted)
    resolve = names(tool="127.0.0.1", other="127.0.0.1")
    async with serving(ok(b"safe"), tls=tls) as server:
        url = server.url(host="tool.test", scheme="https")
        assert (await get(url, resolve=resolve)).body == b"safe"
        with pytest.raises(Unreachable, match="certificate"):
            await get(url.replace("tool", "other"), resolve=resolve)
    assert server_names == ["tool.test", "other.test"]


async def test_nothing_is_taken_from_the_environment(monkeypatch, tmp_path):
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login ada password secret")
    (tmp_path / ".netrc").chmod(0o600)
    monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    async with serving(ok(b"", "text/plain", "Set-Cookie: a=b")) as server:
        await get(server.url())
        await get(server.url())
    head = "".join(server.requests).lower()
    assert "authorization" not in head
    assert "cookie" not in head


# Redirects


async def test_a_redirect_is_followed():
    async with serving([redirect("/there?x=1"), ok(b"found")]) as server:
        fetched = await get(server.url("/here"))
    assert fetched.body == b"found"
    assert server.requests[1].startswith("GET /there?x=1 ")


@pytest.mark.parametrize(
    "location",
    [
        "http://10.0.0.1/",
        "http://169.254.169.254/latest/meta-data/",
        "http://[::ffff:10.0.0.1]/",
        "http://2130706433/",
        "//10.0.0.1/",
        "http://inside.test/",
        "file:///etc/passwd",
        "http://user:word@127.0.0.1/",
    ],
)
async def test_a_redirect_to_a_forbidden_address_is_refused(location: str):
    async with serving(redirect(location)) as server:
        with pytest.raises(AddressRefused):
            await get(server.url(), resolve=names(inside="10.0.0.1"))
    assert len(server.requests) == 1


async def test_a_name_is_looked_up_anew_for_each_redirect():
    async with serving(redirect("/again")) as server:
        url = server.url(host="rebinding.test")
        resolve = names(rebinding=["127.0.0.1", "10.0.0.1"])
        with pytest.raises(AddressRefused):
            await get(url, resolve=resolve)
    assert len(server.requests) == 1


async def test_a_circle_is_left():
    async with serving(redirect("/")) as server:
        with pytest.raises(BrokenAnswer, match="more than 5 times"):
            await get(server.url())
    assert len(server.requests) == 6


@pytest.mark.parametrize(
    ("method", "status", "then"),
    [
        ("POST", "301 Moved", "GET"),
        ("POST", "302 Found", "GET"),
        ("POST", "303 See Other", "GET"),
        ("PUT", "303 See Other", "GET"),
        ("PUT", "301 Moved", "PUT"),
        ("DELETE", "302 Found", "DELETE"),
        ("POST", "307 Temporary", "POST"),
        ("POST", "308 Permanent", "POST"),
        ("HEAD", "303 See Other", "HEAD"),
    ],
)
async def test_a_redirect_changes_the_method_as_in_a_browser(method, status, then):
    async with serving([redirect("/there", status), ok()]) as server:
        request = OutgoingRequest(
            method=method,
            url=server.url(),
            headers={"Content-Type": "application/json"},
            body=b"{}",
        )
        await fetch(request, allow=LOOPBACK)
    assert server.requests[1].startswith(f"{then} /there ")
    is_kept = then == method
    assert server.bodies[1] == (b"{}" if is_kept else b"")
    assert ("content-type: application/json" in server.requests[1].lower()) == is_kept


async def secrets_sent(first: Server, location: str, **options) -> None:
    request = OutgoingRequest(
        url=first.url(host="one.test"),
        headers={"Accept": "text/plain", "X-Trace": "ours"},
        secret_headers={"X-Secret": "hush"},
    )
    resolve = names(one="127.0.0.1", two="127.0.0.1")
    await fetch(request, allow=LOOPBACK, resolve=resolve)


async def test_secrets_stay_with_their_origin():
    async with serving([redirect("/on"), ok()]) as server:
        await secrets_sent(server, "/on")
    assert all("X-Secret: hush" in head for head in server.requests)


@pytest.mark.parametrize("host", ["two.test", "one.test"])  # another name, or port
async def test_another_origin_gets_no_secret_even_after_a_redirect_back(host: str):
    async with serving(ok()) as home:
        back = redirect(home.url("/back", host="one.test"))
        async with serving(back) as other:
            away = redirect(other.url(host=host))
            async with serving(away) as first:
                await secrets_sent(first, "")
    assert "X-Secret: hush" in first.requests[0]
    for server in (other, home):
        assert "hush" not in server.requests[0]
        assert "X-Trace" not in server.requests[0]
        assert "Accept: text/plain" in server.requests[0]


async def test_from_https_to_http_is_no_way(tmp_path, monkeypatch):
    pem = certificate(tmp_path / "tool.pem", "tool.test")
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(pem)
    trusted = ssl.create_default_context(cafile=str(pem))
    monkeypatch.setattr(guarded_client, "ssl_context", lambda: trusted)
    async with serving(redirect("http://tool.test/"), tls=tls) as server:
        url = server.url(host="tool.test", scheme="https")
        with pytest.raises(AddressRefused, match="https to http"):
            await get(url, resolve=names(tool="127.0.0.1"))


# Size and time

SMALL = Limits(size=1000)
SOON = Limits(total=0.05, connect=0.05)


async def test_a_body_announced_too_large_is_not_read():
    async with serving(ok(b"x" * 1001)) as server:
        with pytest.raises(AnswerTooLarge, match="larger than 1,000 bytes"):
            await get(server.url(), limits=SMALL)


async def test_as_much_as_is_allowed_is_read():
    async with serving(ok(b"x" * 1000)) as server:
        assert len((await get(server.url(), limits=SMALL)).body) == 1000


async def pour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    while True:
        writer.write(b"3e8\r\n" + b"x" * 1000 + b"\r\n")
        await writer.drain()


async def test_a_body_without_an_end_is_cut_off():
    async with serving(pour) as server:
        with pytest.raises(AnswerTooLarge):
            await get(server.url(), limits=SMALL)


async def test_a_packed_body_counts_as_it_is_unpacked():
    bomb = gzip.compress(b"\0" * 1_000_000)
    assert len(bomb) < 1000 * 2
    limits = Limits(size=100_000)
    async with serving(ok(bomb, "text/plain", "Content-Encoding: gzip")) as server:
        with pytest.raises(AnswerTooLarge):
            await get(server.url(), limits=limits)


async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()


async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nx")
    await reader.read()


async def drip_head(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-")
    await reader.read()


@pytest.mark.parametrize("slow", [hang, drip, drip_head])
async def test_a_slow_server_is_given_up(slow):
    async with serving(slow) as server:
        with pytest.raises(FetchTimeout, match=r"longer than 0\.05 seconds"):
            await get(server.url(), limits=SOON)


async def test_a_slow_name_server_is_given_up_too():
    async def resolve(host: str, port: int) -> list[str]:
        await asyncio.Event().wait()
        return []

    limits = Limits(connect=0.05)
    with pytest.raises(FetchTimeout, match=r"reached within 0\.05 seconds"):
        await get("http://slow.test/", resolve=resolve, limits=limits)


async def test_a_cancellation_is_raised():
    async with serving(hang) as server:
        task = asyncio.create_task(get(server.url()))
        while not server.requests:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


# Other errors


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"SSH-2.0-OpenSSH\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc",
        answer("302 Found", b"", "Location: http://[::1"),
    ],
)
async def test_a_reply_that_is_not_http_is_reported(raw: bytes):
    async with serving(raw) as server:
        with pytest.raises(BrokenAnswer):
            await get(server.url())


async def test_a_closed_port_is_unreachable():
    async with serving(ok()) as server:
        pass
    with pytest.raises(Unreachable, match="cannot be reached"):
        await get(server.url())


async def test_an_unknown_host_is_reported():
    with pytest.raises(Unreachable, match="name cannot be resolved"):
        await get("http://nowhere.test/", resolve=names())


async def test_a_host_without_an_address_is_reported():
    async def resolve(host: str, port: int) -> list[str]:
        return []

    with pytest.raises(Unreachable, match="has no address"):
        await get("http://empty.test/", resolve=resolve)


@pytest.mark.parametrize("text", ["a\r\nX-Injected: 1", "a\nb", "a\0b"])
async def test_a_header_stays_one_header(text: str):
    async with serving(ok()) as server:
        request = OutgoingRequest(url=server.url(), headers={"X-Name": text})
        with pytest.raises(FetchError, match="cannot be sent"):
            await fetch(request, allow=LOOPBACK)
    assert server.requests == []


async def test_a_redirect_to_nowhere_is_the_answer():
    async with serving(answer("304 Not Modified")) as server:
        assert (await get(server.url())).status == 304
    async with serving(answer("302 Found", b"no location")) as server:
        assert (await get(server.url())).body == b"no location"


async def test_no_error_contains_an_address_or_a_secret():
    async with serving(redirect("http://10.9.8.7/secret-path")) as server:
        request = OutgoingRequest(url=server.url(), secret_headers={"X-Key": "hush"})
        with pytest.raises(AddressRefused) as caught:
            await fetch(request, allow=LOOPBACK)
    text = f"{caught.value} {caught.value.advice} {request!r}"
    for hidden in ("10.9.8.7", "127.0.0.1", "secret-path", "hush"):
        assert hidden not in text
