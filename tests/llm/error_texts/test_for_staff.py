from __future__ import annotations

import html
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from django.test import Client

from llm import errors
from llm.admin.provider_status import statuses_of
from llm.error_texts.for_staff import describe_error, describe_reason
from llm.models import Provider
from llm.probing.jobs import run_probe
from llm.sync import key_check

PAGE = """<!doctype html><html><head><title>502 Bad Gateway</title>
<style>h1 {color: red}</style></head><body><h1>502&nbsp;Bad Gateway</h1>nginx</body>"""


class Host:
    """Answers everything with the same status, headers and text."""

    def __init__(self, status: int, text: str, **headers: str) -> None:
        self.answer = status, text, headers

    def __enter__(self) -> Host:
        status, text, headers = self.answer

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                self.do_GET()

            def do_GET(self) -> None:
                self.send_response(status)
                body = text.encode()
                for name, value in {**headers, "Content-Length": len(body)}.items():
                    self.send_header(name, str(value))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *values: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server.server_port}"
        serve = self.server.serve_forever
        threading.Thread(target=serve, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.server.shutdown()
        self.server.server_close()


def a_provider(host: Host, **fields: str) -> Provider:
    row = Provider.objects.create(
        name="Works",
        kind="openai_compatible",
        base_url=f"{host.address}/v1",
        allow_private_network=True,
        **fields,
    )
    row.keys.create(label="a", secret="sk-planted-0123456789")
    row.models.create(name="m")
    return row


def pages(client: Client, row: Provider) -> str:
    """What staff read after a connection test and a look at the list of models."""
    found = ""
    for action in ("test_connection", "sync_models"):
        form = {"action": action, "_selected_action": row.pk}
        address = "/admin/llm/provider/"
        found += client.post(address, form, follow=True).text
    for address in ("/admin/", "/admin/llm/apikey/", "/admin/llm/provider/"):
        found += client.get(address).text
    return found + client.get(f"/admin/llm/provider/{row.pk}/change/").text


REFUSAL = '{"error": {"message": "Wrong."}}'


@pytest.mark.parametrize(
    ("host", "words"),
    [
        (Host(401, REFUSAL), "(HTTP 401)"),
        (Host(402, REFUSAL), "(HTTP 402)"),
        (Host(403, REFUSAL), "(HTTP 403)"),
        (Host(429, REFUSAL), "(HTTP 429)"),
        (Host(400, REFUSAL), "(HTTP 400)"),
        (Host(502, PAGE), "502 Bad Gateway nginx"),
        (Host(200, PAGE), "correct the base URL"),
        (Host(200, "[1]"), "Is the base URL right?"),
        (Host(302, "", location="/x"), "correct the base URL"),
    ],
)
def test_staff_are_never_referred_to_the_staff(
    admin_client: Client, host: Host, words: str
):
    with host:
        shown = html.unescape(pages(admin_client, a_provider(host)))
    assert "the staff" not in shown
    assert words in shown
    assert "planted" not in shown


def test_a_web_page_in_place_of_the_list_of_models_is_named(admin_client: Client, db):
    with Host(200, PAGE) as host:
        row = a_provider(host)
        row.models.all().delete()
        shown = html.unescape(pages(admin_client, row))
    assert "A web page came instead of an API's answer: correct the base URL" in shown
    assert "not JSON" not in shown


@pytest.mark.parametrize("answer", ["nonsense", '{"models": 7}'])
def test_our_own_words_are_not_called_the_providers(
    admin_client: Client, db, answer: str
):
    with Host(200, answer) as host:
        row = a_provider(host)
        form = {"action": "sync_models", "_selected_action": row.pk}
        shown = admin_client.post("/admin/llm/provider/", form, follow=True).text
    assert "Is the base URL right?" in shown
    assert "s message:" not in shown


def test_a_private_address_names_what_to_tick(admin_client: Client, db):
    row = Provider.objects.create(
        name="Near", kind="openai_compatible", base_url="http://127.0.0.1:9/v1"
    )
    shown = pages(admin_client, row)
    assert "the staff" not in shown
    assert "tick “Allow private network”" in shown


def test_a_host_that_answers_is_not_called_unreachable(db):
    with Host(502, PAGE) as host:
        [finding] = key_check.probe(a_provider(host))
    assert finding.text == (
        f"fails: {host.address}/v1 answers with HTTP 502. The provider's message:"
        " 502 Bad Gateway 502 Bad Gateway nginx"
    )


def test_over_plain_http_the_proxy_may_be_what_answers(db):
    with Host(502, PAGE) as proxy:
        row = a_provider(proxy, proxy_url=proxy.address)
        [finding] = key_check.probe(row)
    assert f"It may be the proxy {proxy.address} that answers so." in finding.text
    assert statuses_of([row])[row.pk].text.endswith(
        "(HTTP 502) The proxy may have answered so."
    )


@pytest.mark.parametrize(
    ("status", "problem"),
    [
        (401, "bad key"),
        (402, "no quota"),
        (404, "unknown model"),
        (429, "rate limit"),
        (503, "outage"),
    ],
)
def test_each_result_of_a_key_test_is_translated(
    db, monkeypatch: pytest.MonkeyPatch, status: int, problem: str
):
    monkeypatch.setattr(key_check, "_", lambda text: f"«{text}»")
    refusal = '{"error": {"message": "Wrong.", "code": "model_not_found"}}'
    with Host(status, refusal if status == 404 else REFUSAL) as host:
        [finding] = key_check.probe(a_provider(host))
    assert finding.problem == problem
    assert finding.text.startswith("«")
    assert finding.text.partition(" The provider's message:")[0].endswith("»")


def test_a_probe_names_a_connection_problem_once(db):
    with Host(200, "") as host:
        row = a_provider(host)
    found = row.models.get().probes.create()
    run_probe(found.pk)
    found.refresh_from_db()
    why = found.findings[0]["values"]["why"]
    assert why.count("The provider cannot be reached.") == 1


def test_what_is_known_besides_the_class_stays():
    reason = (
        "E_LLM_INVALID_KEY: Entra ID refused the client; ask the staff to check it."
    )
    words = "E_LLM_INVALID_KEY: Entra ID refused the client; check it."
    assert describe_reason(reason) == words


KINDS = [each for each in vars(errors).values() if isinstance(each, type)]


@pytest.mark.parametrize(
    "kind", [each for each in KINDS if issubclass(each, errors.LLMError)]
)
def test_every_error_has_words_for_staff(kind: type[errors.LLMError]):
    words = describe_error(kind())
    assert "the staff" not in words
    assert "E_" not in words
    assert describe_reason(f"{kind.code}: {kind()}") != f"{kind.code}: {kind()}"
