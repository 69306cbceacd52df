"""The installable app: its manifest and worker name only public files."""

from __future__ import annotations

import json
import re

import pytest
from django.contrib.staticfiles import finders
from django.test import Client

from tests.conversations.scene import a_user, signed_in

pytestmark = pytest.mark.django_db


def shell(script: str) -> dict[str, object]:
    found = re.match(r"const SHELL = (\{.*\});", script)
    assert found
    return json.loads(found[1])


def test_the_manifest_is_complete_and_its_icons_exist():
    answer = Client().get("/manifest.webmanifest")
    assert answer["Content-Type"] == "application/manifest+json"
    manifest = answer.json()
    assert manifest["display"] == "standalone"
    assert {icon["sizes"] for icon in manifest["icons"]} == {"192x192", "512x512"}
    for icon in manifest["icons"]:
        assert finders.find(icon["src"].removeprefix("/static/"))
    assert 'rel="manifest"' in Client().get("/login/").text


def test_the_worker_stores_static_files_and_the_offline_page_only():
    answer = signed_in(a_user("ada")).get("/sw.js")
    assert answer["Content-Type"].startswith("text/javascript")
    assert "no-cache" in answer["Cache-Control"]
    stored = shell(answer.text)
    assert stored["page"] == "/offline/?language=en"
    files = stored["files"]
    assert isinstance(files, list)
    for name in files:
        assert finders.find(name.removeprefix("/static/"))


def test_the_worker_is_another_one_where_the_offline_page_is():
    ada = signed_in(a_user("ada"))
    versions = {
        shell(ada.get("/sw.js", headers={"Accept-Language": language}).text)["version"]
        for language in ("en", "de", "zh-hans")
    }
    assert len(versions) == 3


def test_a_signed_out_browser_gets_a_worker_that_removes_itself():
    script = Client().get("/sw.js").text
    assert "unregister" in script
    assert "SHELL" not in script


def test_the_offline_page_has_nothing_of_a_user():
    ada = signed_in(a_user("ada"))
    stranger = Client().get("/offline/")
    assert stranger.status_code == 200
    assert "data-user" not in stranger.text
    used = set(re.findall(r'(?:src|href)="(/static/[^"]+)"', stranger.text))
    stored = shell(ada.get("/sw.js").text)["files"]
    assert isinstance(stored, list)
    icons = {name for name in used if name.endswith(".png")}
    assert used - icons <= set(stored)


def test_the_offline_page_is_in_the_users_language():
    bob = signed_in(a_user("bob"))
    chosen = {"theme": "dark", "font_size": "large", "language": "fr"}
    bob.post("/settings/", {**chosen, "default_model": ""})
    worker = bob.get("/sw.js", headers={"Accept-Language": "de"}).text
    assert '"page": "/offline/?language=fr"' in worker
    page = Client().get("/offline/?language=fr", headers={"Accept-Language": "de"}).text
    assert '<html lang="fr"' in page
    assert "Vous êtes hors ligne" in page
    other = Client().get("/offline/?language=xx", headers={"Accept-Language": "de"})
    assert '<html lang="de"' in other.text
