"""What is planted as a secret is found in no log, page, dump or error."""

from __future__ import annotations

import re

import httpx
import pytest

from conversations.models import AccessToken
from tests.integration.clients import Program, sign_in

KEY = "sk-planted-k3y-0f-th1s-test-ab12"
PROMPT = "planted-words-of-a-private-prompt"
ADMIN_PAGES = [
    "/admin/",
    "/admin/llm/provider/",
    "/admin/llm/provider/1/change/",
    "/admin/llm/provider/2/change/",
    "/admin/llm/apikey/",
    "/admin/llm/apikey/1/change/",
    "/admin/llm/apikey/2/change/",
    "/admin/llm/apikey/2/history/",
    "/admin/llm/languagemodel/",
    "/admin/llm/modelcall/",
    "/admin/tools/tool/",
    "/admin/conversations/accesstoken/",
]


@pytest.fixture
def planted(start_server):
    """A server whose own OpenAI address refuses the planted key."""
    server = start_server(
        OPENAI_API_KEY=KEY, OPENAI_MODEL="gpt-5", LOG_LEVEL="DEBUG", ACCESS_LOG="true"
    )
    server.environment["OPENAI_API_BASE"] = f"{server.url}/demo/v1"
    return server.restart()


async def test_secrets_are_found_nowhere(planted):
    program = Program(planted)
    conversation = await program.conversation()
    texts = []
    async with program.http() as http:
        for model in ("openai/gpt-5", "demo/demo-fast", None):
            fields = {"input": f"/echo {PROMPT}", "model": model, "wait": True}
            url = f"/api/conversations/{conversation}/turns/"
            texts.append((await http.post(url, json=fields)).text)
        fields = {"input": [{"role": PROMPT, "content": PROMPT}]}
        texts.append((await http.post(url, json=fields)).text)
        for url in ("/api/models/", "/api/schema/", "/api/turns/none/"):
            texts.append((await http.get(url)).text)
    assert "provider refused the API key" in texts[0]
    token = http.headers["Authorization"].removeprefix("Bearer ")
    cookie = await sign_in(planted, "admin")
    async with httpx.AsyncClient(
        base_url=planted.url, headers={"Cookie": cookie}, timeout=60
    ) as person:
        for page in ADMIN_PAGES:
            answer = await person.get(page)
            assert answer.status_code == 200, page
            texts.append(answer.text)
    dumps = [
        planted.manage("dumpdata", "llm", "tools"),
        planted.manage("dump_config"),
    ]
    planted.stop()
    everywhere = [*texts, *dumps, planted.log(), "\n".join(planted.banner)]
    for text in everywhere:
        assert KEY not in text
        assert token not in text
        assert not re.search(r"demo-[0-9a-f]{40}", text)
    for text in (*dumps, planted.log()):
        assert PROMPT not in text


async def test_a_token_is_stored_only_as_its_digest(server):
    token = server.create_token()
    server.stop()
    files = [path.read_bytes() for path in server.data.iterdir() if path.is_file()]
    assert any(AccessToken.digest_of(token).encode() in data for data in files)
    assert not any(token.encode() in data for data in files)


@pytest.mark.smoke
async def test_keys_are_encrypted_in_the_file(planted):
    planted.stop()
    files = [path.read_bytes() for path in planted.data.glob("*.sqlite3*")]
    assert any(b"gpt-5" in data for data in files)  # the model beside it
    assert not any(KEY.encode() in data for data in files)
