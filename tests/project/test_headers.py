"""Response headers for browsers and caches."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import httpx
import pytest
from django.test import Client

from tests.conversations.scene import a_user, bearer, signed_in
from tests.serving import BASE, ServerProcess

pytestmark = pytest.mark.django_db(transaction=True)


def behind_https(code: str) -> str:
    """What `code` prints over settings of a server behind a proxy."""
    head = "import django; django.setup(); from django.conf import settings;"
    return subprocess.run(
        [sys.executable, "-c", head + code],
        cwd=BASE,
        env={
            "DJANGO_SETTINGS_MODULE": "tests.settings",
            "BEHIND_HTTPS": "true",
            "PATH": "",
        },
        capture_output=True,
        text=True,
        check=True,
    ).stdout


@pytest.mark.server
def test_behind_https_cookies_are_of_this_host_alone_and_http_is_left():
    names = ["SESSION", "CSRF", "BROWSER", "MESSAGE"]
    names = [f"{name}_COOKIE_NAME" for name in names]
    response = behind_https(
        "from django.core.management import call_command;"
        "call_command('migrate', verbosity=0);"
        f"print(*[getattr(settings, name) for name in {names!r}]);"
        "from django.test import Client;"
        "here = {'Host': 'localhost'};"
        "plain = Client(headers=here).get('/login/?a=b');"
        "print(plain.status_code, plain['Location']);"
        "there = {**here, 'X-Forwarded-Proto': 'https'};"
        "secure = Client(headers=there).get('/login/');"
        "print(secure.status_code, secure['Strict-Transport-Security']);"
        "print(secure.cookies['__Host-csrftoken'].OutputString());"
        "print(Client(headers=here).get('/healthz').status_code)"
    ).splitlines()
    cookies = ("sessionid", "csrftoken", "parley_browser", "messages")
    assert response[0].split() == [f"__Host-{name}" for name in cookies]
    assert response[1] == "301 https://localhost/login/?a=b"
    assert response[2] == "200 max-age=31536000; includeSubDomains"
    assert "Secure" in response[3]
    assert "Path=/" in response[3]
    assert "Domain" not in response[3]
    assert response[4] == "200"


@pytest.mark.parametrize("path", ["/api/models/", "/api/turns/x/", "/nothing/here/"])
def test_no_json_is_stored_or_sniffed(path: str):
    for client in (Client(), Client(headers=bearer(a_user("ada")))):
        answer = client.get(path, headers={"Accept": "application/json"})
        assert answer["X-Content-Type-Options"] == "nosniff"
        assert "camera=()" in answer["Permissions-Policy"]
        if answer["Content-Type"] == "application/json":
            assert answer["Cache-Control"] == "no-store"


def test_signing_out_clears_the_cache_and_nothing_else():
    browser = signed_in(a_user("ada", is_staff=True))
    assert browser.post("/logout/")["Clear-Site-Data"] == '"cache"'
    assert "Clear-Site-Data" not in browser.get("/login/")
    browser = signed_in(a_user("grace", is_staff=True))
    assert browser.post("/admin/logout/")["Clear-Site-Data"] == '"cache"'


def test_responses_outside_django_have_the_same_headers(shared_server: ServerProcess):
    token = shared_server.create_token()
    http = httpx.Client(
        base_url=shared_server.url, headers={"Authorization": f"Bearer {token}"}
    )
    with http:
        chat = http.post("/api/conversations/", json={}).json()["id"]
        answers: dict[str, Any] = {
            "gateway": http.get("/v1/models"),
            "refused": http.get("/v1/nothing"),
            "wait": http.post(
                f"/api/conversations/{chat}/turns/", json={"input": "Hi", "wait": True}
            ),
            "health": http.get("/healthz"),
        }
        events = f"/api/turns/{answers['wait'].json()['id']}/events/"
        with http.stream("GET", events) as stream:
            assert stream.headers["content-type"].startswith("text/event-stream")
            csp = stream.headers["content-security-policy"]
            assert "frame-ancestors 'none'" in csp
            assert stream.headers["x-content-type-options"] == "nosniff"
            assert stream.headers["x-frame-options"] == "DENY"
    for name, answer in answers.items():
        assert answer.headers["content-type"] == "application/json", name
        assert answer.headers["cache-control"] == "no-store", name
        assert answer.headers["x-content-type-options"] == "nosniff", name


def test_the_document_is_made_once_and_not_sent_again_unchanged(
    monkeypatch: pytest.MonkeyPatch,
):
    from conversations.api.openapi_generator import Generator

    client, made = Client(), []
    first = client.get("/api/schema/", {"format": "json"})

    def count(self: Any, *args: Any, **kwargs: Any) -> Any:
        made.append(self)
        raise AssertionError

    monkeypatch.setattr(Generator, "get_schema", count)
    again = client.get("/api/schema/", {"format": "json"})
    assert again.content == first.content
    assert first["ETag"] == again["ETag"]
    unchanged = client.get(
        "/api/schema/", {"format": "json"}, headers={"If-None-Match": first["ETag"]}
    )
    assert (unchanged.status_code, unchanged.content) == (304, b"")
    assert made == []
