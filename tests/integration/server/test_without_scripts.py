"""A person without JavaScript at a real server, with nothing but the pages' own links,
fields and buttons."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.plain_browser import PlainBrowser
from tests.serving import PASSWORD, ServerProcess

pytestmark = [pytest.mark.server, pytest.mark.slow]

ROWS = f"""
from django.contrib.auth.models import User
from llm.demo.key import demo_key
from llm.models import ApiKey, LanguageModel, Provider
from tools.models import Tool
row = Provider.objects.create(name="Own", kind="openai_compatible",
    base_url="{{url}}/demo/v1", allow_private_network=True)
ApiKey.objects.create(provider=row, secret=demo_key())
LanguageModel.objects.create(provider=row, name="demo-fast", label="Quick")
LanguageModel.objects.create(provider=row, name="demo-slow", label="Slow")
Tool.objects.filter(name="calculator").update(approval="always")
for name in ("ada", "bob", "eve"):
    User.objects.create_user(name, password="{PASSWORD}")
"""
CALCULATION = '/tool calculator {"expression": "6 * 7"}'
NEW_PASSWORD = "plums-and-medlars-7"
DEMO = "Demo A script, no AI, with tools and memories."
Enter = Callable[..., PlainBrowser]


@pytest.fixture(scope="module")
def server(
    migrated_data: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    data = tmp_path_factory.mktemp("plain") / "data"
    shutil.copytree(migrated_data, data)
    server = ServerProcess(data).start()
    server.manage("shell", "-v0", "-c", ROWS.replace("{url}", server.url))
    yield server
    server.kill()


@pytest.fixture
def enter(server: ServerProcess) -> Iterator[Enter]:
    browsers = []

    def sign_in(name: str = "ada", password: str = PASSWORD) -> PlainBrowser:
        browsers.append(browser := PlainBrowser(server.url))
        browser.open("/")
        browser.press("Sign in", {"Username": name, "Password": password})
        return browser

    yield sign_in
    for browser in browsers:
        browser.close()


def say(browser: PlainBrowser, text: str, button: str = "Send", **fill: str) -> None:
    browser.press(button, {"Message": text, **fill})
    browser.wait_for_answer()


def test_messages_and_their_branches(enter: Enter):
    ada = enter()
    ada.press("Send", refused=True)
    assert "Write a message first." in ada.words
    say(ada, "/echo pears", Model="Quick")
    assert "pears" in ada.words
    ada.follow("Edit the message")
    ada.press("Save and send", {"Message": " "}, refused=True)
    ada.press("Save and send", {"Message": "/echo quinces"})
    ada.wait_for_answer()
    assert "Version 2/2" in ada.words
    ada.press("Previous version")
    assert "Version 1/2" in ada.words
    again = "Answer again with the chosen model"
    ada.press(again, {"Model": "Slow", "Message": "a draft"})
    assert ada.value_of("Message") == "a draft"
    ada.wait_for_answer()
    assert "Version 3/3" in ada.words
    say(ada, "/markdown")
    ada.press("Continue in a new conversation")
    ada.press("Delete from here")
    assert "The messages are deleted." in ada.words
    ada.press("Undo")
    ada.press("Bad answer")
    ada.press("Save", {"What was good or bad? Staff can read it.": "Too short."})
    assert "Your comment" in ada.words


def test_an_answer_that_was_cut_goes_on_beside_a_draft(enter: Enter):
    ada = enter()
    say(ada, "/cut", Model="Quick")
    ada.press("Continue the answer", {"Message": "a draft"})
    assert ada.value_of("Message") == "a draft"
    ada.wait_for_answer()
    assert "Continued" in ada.words


def test_files_and_what_is_refused(enter: Enter):
    ada = enter()
    note = ("note.txt", b"A note", "text/plain")
    ada.press("Send", {"Message": "/echo a file"}, files=[note])
    ada.wait_for_answer()
    assert "note.txt" in ada.words
    program = ("x.exe", b"MZ\0", "application/x-msdownload")
    ada.press("Send", {"Message": "typed"}, files=[program], refused=True)
    assert ada.value_of("Message") == "typed"
    assert "x.exe" in ada.words


def test_two_models_answer_and_one_goes_on(enter: Enter):
    ada = enter()
    ada.press("Send", {"Message": "/echo both", "Model": "Slow"}, ticks=["Quick"])
    ada.wait_for_answer()
    ada.press("Go on with this answer")
    say(ada, "/echo more")
    assert "more" in ada.words


def test_what_waits_is_changed_moved_and_removed(enter: Enter):
    ada = enter()
    ada.press("Send", {"Message": "/long 5000", "Model": "Slow"})
    ada.press("Refresh", {"Message": "/echo plums"})
    ada.press("Send")
    queue = "Queue Send it when the answer has ended"
    ada.press(queue, {"Message": "/echo sloes"})
    ada.press("Save", {"Waiting message": "/echo damsons"})
    ada.press("Send later")
    assert ada.words.index("/echo sloes") < ada.words.index("/echo damsons")
    ada.press("Remove from the queue")
    assert "/echo sloes" not in ada.words
    ada.press("Stop the answer")
    ada.wait_for_answer()
    assert "damsons" in ada.words


def test_a_call_is_allowed_or_refused(enter: Enter):
    ada = enter()
    for button, result in (("Approve", "48"), ("Decline", "Declined by ada")):
        ada.open("/")
        ada.press("Send", {"Message": CALCULATION, "Model": "Quick"})
        while "May calculator run?" not in ada.words:
            ada.press("Refresh")
        if button == "Approve":
            wrong = {"Arguments as JSON": "{broken", "Note": "mine"}
            ada.press("Approve", wrong, refused=True)
            assert ada.value_of("Arguments as JSON") == "{broken"
            assert ada.value_of("Note") == "mine"
            ada.press("Approve", {"Arguments as JSON": '{"expression": "6 * 8"}'})
        else:
            ada.press("Decline", {"Note": "Not now."})
        ada.wait_for_answer()
        assert result in ada.words


def test_conversations_are_found_and_kept_in_order(enter: Enter):
    ada = enter()
    ada.follow("Folders")
    ada.press("Create", {"Name": "Fruit", "Instructions": "Be brief."})
    ada.press("Add", files=[("n.txt", b"A list", "text/plain")])
    ada.follow("Open")
    say(ada, "/echo a word about medlars")
    ada.follow("Rename")
    ada.press("Save", {"Title": "Fruit nobody knows"})
    ada.follow("Folder and tags")
    ada.press("Save", {"Tags": "old, rare"})
    ada.press("Pin")
    ada.press("Search", {"Search conversations": "medlars"})
    ada.press("Find", {"Folder": "Fruit", "Tag": "rare", "Archived": "With"})
    chosen = ["Select Fruit nobody knows"]
    ada.press("Remove", ticks=chosen, refused=True)
    ada.press("Add", {"Tag": "bulk"})
    assert "bulk" in ada.words
    ada.press("Archive", ticks=chosen)
    ada.open("/")
    ada.follow("Archived")
    ada.press("Take out of the archive", ticks=chosen)
    ada.open("/")
    ada.follow("Delete")
    ada.press("Delete")
    ada.press("Undo")
    assert "medlars" in ada.words


def test_a_conversation_is_shared_and_no_longer(enter: Enter):
    ada, bob = enter(), enter("bob")
    say(ada, "/echo for all", Model="Quick")
    here = ada.url
    ada.follow("Share")
    ada.press("Create the link", {"Expires after": "3"})
    (link,) = re.findall(r"http://\S+/shared/\S+", ada.words)
    bob.open(link)
    assert "for all" in bob.words
    ada.press("Revoke")
    ada.open(here)
    ada.follow("People")
    ada.press("Invite", {"User name": "bob", "May": "read and write"})
    bob.open("/")
    bob.follow("1 invitation")
    bob.press("Accept")
    say(bob, "/echo from bob")
    assert "from bob" in bob.words
    ada.press("Remove")
    assert "bob no longer takes part." in ada.words


def test_settings_prompts_memories_and_tokens(enter: Enter):
    ada = enter()
    ada.follow("Settings")
    ada.press("Save", {"Colours": "Dark", "Model of new chats": "Quick"})
    ada.follow("Prompts")
    new = {"Name": "a name", "Text": "/echo Hello {{who}}"}
    ada.press("Save", new, refused=True)
    assert ada.value_of("Text") == new["Text"]
    ada.press("Save", {"Name": "hello"})
    ada.follow("Use")
    ada.press("Use", {"who": "Eve"})
    say(ada, ada.value_of("Message"))
    assert "Hello Eve" in ada.words
    ada.open("/")
    remember = '/tool remember {"text": "likes pears"}'
    ada.press("Send", {"Message": remember}, ticks=[DEMO])
    ada.wait_for_answer()
    ada.follow("Settings")
    ada.follow("Memories")
    ada.press("Save", {"Memory": "likes plums"})
    ada.follow("Delete")
    ada.press("Delete")
    ada.follow("Connect an app")
    ada.follow("Access tokens")
    ada.press("Create the token", {"Name of the token": "script"})
    assert "parley_" in ada.words
    ada.press("Revoke")
    ada.follow("Own keys")
    ada.follow("Shortcuts")
    ada.press("Save")


def test_chats_are_exported_and_imported(enter: Enter):
    ada = enter()
    say(ada, "/echo kept", Model="Quick")
    ada.follow("Export")
    whole = ada.download("JSON")
    assert b"kept" in ada.download("Markdown")
    ada.open("/")
    ada.follow("Print")
    eve = enter("eve")
    eve.follow("Import and export")
    eve.press("Import", refused=True)
    eve.press("Import", files=[("chat.json", whole, "application/json")])
    while eve.has_link("Renew"):
        eve.follow("Renew")
    assert "Imported 1" in eve.words


def test_a_temporary_chat_and_the_end_of_an_account(enter: Enter):
    eve = enter("eve")
    eve.press("Send", {"Message": "/echo once"}, ticks=["Temporary chat"])
    eve.wait_for_answer()
    assert "it is in no list" in eve.words
    eve.open("/")
    eve.follow("Account")
    fields = ("New password", "New password confirmation")
    change = {"Old password": "wrong", **dict.fromkeys(fields, NEW_PASSWORD)}
    eve.press("Change the password", change, refused=True)
    eve.press("Change the password", {**change, "Old password": PASSWORD})
    eve.follow("To the chats")
    eve.press("Sign out")
    eve = enter("eve", NEW_PASSWORD)
    eve.follow("Account")
    eve.follow("Delete my account")
    eve.press("Delete my account", {"Password": "wrong"}, refused=True)
    eve.press("Delete my account", {"Password": NEW_PASSWORD})
    assert "Your account is deleted" in eve.words
