"""`serve --workers`: several processes serve the gateway's stateless traffic."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from tests.conftest import StartServer
from tests.integration.clients import sign_in
from tests.integration.limited import Limited, admitted
from tests.project.monitoring.live_metrics import TOKEN, read, scrape, value
from tests.serving import PASSWORD, PATIENCE, Deadline, ServerProcess, free_port

pytestmark = pytest.mark.slow

HI = [{"role": "user", "content": "/echo Hi"}]
CHAT = {"model": "demo", "messages": HI}
LONG = {**CHAT, "stream": True, "messages": [{"role": "user", "content": "/long 60"}]}
ENDLESS = {**LONG, "messages": [{"role": "user", "content": "/long 100000"}]}
STATELESS = {
    "/v1/chat/completions": CHAT,
    "/v1/messages": {**CHAT, "max_tokens": 99},
    "/v1/messages/count_tokens": CHAT,
    "/v1/responses": {"model": "demo", "input": "/echo Hi", "store": False},
    "/v1/responses/input_tokens": {"model": "demo", "input": "/echo Hi"},
}
STORED = (
    ("POST", "/v1/responses"),
    ("GET", "/v1/responses/resp_1"),
    ("DELETE", "/v1/responses/resp_1"),
    ("POST", "/v1/responses/resp_1/cancel"),
    ("GET", "/v1/responses/resp_1/input_items"),
    ("GET", "/"),
    ("GET", "/admin/"),
    ("POST", "/api/conversations/"),
    ("GET", "/metrics"),
)
WORKERS = 2


def start(start_server: StartServer, **environment: str) -> ServerProcess:
    return start_server(
        GATEWAY_WORKERS=str(WORKERS), GATEWAY_PORT=str(free_port()), **environment
    )


@pytest.fixture
def server(start_server: StartServer) -> ServerProcess:
    return start(start_server)


@pytest.fixture(scope="module")
def shared(
    tmp_path_factory: pytest.TempPathFactory, migrated_data: Path
) -> Iterator[ServerProcess]:
    """For tests that leave it running, each with a token of its own."""
    data = tmp_path_factory.mktemp("gateway") / "data"
    shutil.copytree(migrated_data, data)
    environment = {
        "GATEWAY_WORKERS": str(WORKERS),
        "GATEWAY_PORT": str(free_port()),
        "METRICS_TOKEN": TOKEN,
    }
    server = ServerProcess(data, environment).start()
    yield server
    server.kill()


@pytest.fixture
def shared_program(shared: ServerProcess) -> Iterator[httpx.Client]:
    with client_of(shared, shared.create_token()) as program:
        yield program


@pytest.fixture
def program(server: ServerProcess) -> Iterator[httpx.Client]:
    with client_of(server, server.create_token()) as program:
        yield program


def gateway_url(server: ServerProcess) -> str:
    return f"http://127.0.0.1:{server.environment['GATEWAY_PORT']}"


def client_of(server: ServerProcess, token: str) -> httpx.Client:
    return httpx.Client(
        base_url=gateway_url(server),
        headers={"Authorization": f"Bearer {token}"},
        timeout=PATIENCE,
    )


def children_of(server: ServerProcess) -> list[int]:
    assert server.process
    return children(server.process.pid)


def children(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(each) for task in tasks for each in task.read_text().split()]


def is_running(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


def wait_until(is_true: Callable[[], Any]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not is_true():
        assert time.monotonic() < deadline
        time.sleep(0.05)  # another process: no event to wait for


async def ask(
    server: ServerProcess, token: str, count: int, **headers: str
) -> list[httpx.Response]:
    """Each on a connection of its own, so that all processes get some."""

    async def ask_once() -> httpx.Response:
        async with httpx.AsyncClient(timeout=PATIENCE) as http:
            return await http.post(
                f"{gateway_url(server)}/v1/chat/completions",
                json=CHAT,
                headers={"Authorization": f"Bearer {token}", **headers},
            )

    return await asyncio.gather(*(ask_once() for _ in range(count)))


def test_what_stores_nothing_is_answered(shared_program: httpx.Client):
    program = shared_program
    for path, body in STATELESS.items():
        answer = program.post(path, json=body)
        assert answer.status_code == 200, (path, answer.text)
    assert {"demo"} & {each["id"] for each in program.get("/v1/models").json()["data"]}
    assert program.get("/healthz").json() == {"status": "ok"}
    assert program.get("/readyz").json()["status"] == "ready"
    assert program.head("/").status_code == 200
    assert program.post("/chat/completions", json=CHAT).status_code == 404


def test_everything_else_names_the_main_address(
    shared: ServerProcess, shared_program: httpx.Client
):
    server, program = shared, shared_program
    body = {"model": "demo", "input": "Hi"}
    for method, path in STORED:
        answer = program.request(method, path, json=None if method == "GET" else body)
        assert answer.status_code == 421, (method, path, answer.text)
        error = answer.json()["error"]
        assert error["code"] == "misdirected_request"
        assert server.url in error["message"]
    anthropic = {"anthropic-version": "2023-06-01"}
    assert program.get("/", headers=anthropic).json()["type"] == "error"


def test_pages_elsewhere_can_read_the_refusal(shared: ServerProcess):
    server = shared
    server.create_token()
    origin = "https://page.example"
    server.manage(
        *("shell", "-v0", "-c"),
        "from conversations.models import AccessToken;"
        f"AccessToken.objects.update(allowed_origins={origin!r})",
    )
    stored, headers = f"{gateway_url(server)}/v1/responses/resp_1", {"Origin": origin}
    asking = {**headers, "Access-Control-Request-Method": "DELETE"}
    with httpx.Client(headers=headers, timeout=PATIENCE) as page:
        preflight = page.options(stored, headers=asking)
        assert preflight.status_code == 204
        assert "DELETE" in preflight.headers["access-control-allow-methods"]
        refusal = page.delete(stored)
        assert refusal.status_code == 421
        assert refusal.headers["access-control-allow-origin"] == origin


async def test_a_websocket_is_refused_with_the_same_error(shared: ServerProcess):
    address = gateway_url(shared).replace("http", "ws")
    for path in ("/v1/responses", "/ws/conversations/1/"):
        with pytest.raises(InvalidStatus) as refused:
            await connect(address + path, open_timeout=PATIENCE)
        assert refused.value.response.status_code == 421
        assert shared.url.encode() in refused.value.response.body


async def test_a_rate_limit_counts_the_requests_of_all_processes(
    shared: ServerProcess,
):
    server = shared
    token = server.create_token()
    limit_requests(server, 2)
    began = time.monotonic()
    answers = await ask(server, token, 20)
    async with httpx.AsyncClient(timeout=PATIENCE) as http:
        answers += [
            await http.get(
                f"{server.url}/v1/models", headers={"Authorization": f"Bearer {token}"}
            )
        ]
    refilled = (time.monotonic() - began) * 2 / 60
    assert {each.status_code for each in answers} == {200, 429}
    allowed = [each for each in answers if each.status_code == 200]
    assert 2 <= len(allowed) <= 2 + refilled
    assert all("x-ratelimit-limit-requests" in each.headers for each in answers)


def limit_requests(server: ServerProcess, requests: int) -> None:
    server.manage(
        *("shell", "-v0", "-c"),
        "from conversations.models import AccessToken;"
        f"AccessToken.objects.update(requests_per_minute={requests})",
    )


async def test_a_limit_of_use_is_not_multiplied(server: ServerProcess):
    limited = Limited([server])
    await limited.set_limit(10)
    token = server.create_token()

    async def ask_gateway() -> list[int]:
        return [each.status_code for each in await ask(server, token, 60)]

    both = await asyncio.gather(limited.ask(60), ask_gateway())
    assert sum(map(admitted, both)) == 10


def test_open_requests_of_a_token_count_in_all_processes(start_server: StartServer):
    server = start(start_server, TOKEN_CONNECTIONS="1")
    token = server.create_token()
    with (
        client_of(server, token) as program,
        program.stream("POST", "/v1/chat/completions", json=ENDLESS) as running,
    ):
        lines = running.iter_lines()
        next(lines)
        for address in [gateway_url(server)] * 6 + [server.url]:
            answer = httpx.post(
                f"{address}/v1/chat/completions",
                json=CHAT,
                headers=dict(program.headers),
                timeout=PATIENCE,
            )
            assert answer.status_code == 429
            assert answer.json()["error"]["code"] == "too_many_connections"
    with client_of(server, token) as program:
        wait_until(
            lambda: program.post("/v1/chat/completions", json=CHAT).status_code == 200
        )


async def test_one_answer_for_an_idempotency_key(shared: ServerProcess):
    server = shared
    key = {"Idempotency-Key": "one"}
    answers = await ask(server, server.create_token(), 8, **key)
    ids = {each.json()["id"] for each in answers if each.status_code == 200}
    assert len(ids) == 1
    assert {each.status_code for each in answers} <= {200, 409}


async def test_a_revoked_token_is_refused_by_all(shared: ServerProcess):
    server = shared
    token = server.create_token()
    clients = [client_of(server, token) for _ in range(8)]
    for client in clients:
        assert client.get("/v1/models").status_code == 200
    await revoke(server)
    wait_until(
        lambda: {each.get("/v1/models").status_code for each in clients} == {401}
    )
    for client in clients:
        client.close()


async def revoke(server: ServerProcess) -> None:
    """By the admin's page, in the process with the engine."""
    cookie = await sign_in(server, "admin", PASSWORD)
    name, _, value = cookie.partition("=")
    async with httpx.AsyncClient(base_url=server.url, timeout=PATIENCE) as http:
        http.cookies.set(name, value)
        page = await http.get("/admin/conversations/accesstoken/")
        ids = re.findall(r'name="_selected_action" value="(\d+)"', page.text)
        assert ids, page.text
        done = await http.post(
            page.url,
            data={
                "csrfmiddlewaretoken": csrf(page),
                "action": "delete_selected",
                "_selected_action": ids,
                "post": "yes",
            },
        )
        assert done.status_code == 302, done.text


def csrf(page: httpx.Response) -> str:
    found = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', page.text)
    assert found, page.text
    return found[1]


def test_a_killed_process_is_started_again(
    server: ServerProcess, program: httpx.Client
):
    assert program.get("/v1/models").status_code == 200
    wait_until(lambda: len(children_of(server)) == WORKERS)
    killed = children_of(server)
    for pid in killed:
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: len({*children_of(server)} - {*killed}) == WORKERS)
    assert httpx.get(f"{server.url}/healthz", timeout=PATIENCE).status_code == 200
    with client_of(server, program.headers["Authorization"].split()[1]) as again:
        assert again.get("/v1/models").status_code == 200
    assert server.log().count("it is started again") == WORKERS


def test_a_killed_process_loses_only_its_own_streams(
    server: ServerProcess, program: httpx.Client
):
    wait_until(lambda: len(children_of(server)) == WORKERS)
    with httpx.stream(
        "POST",
        f"{server.url}/v1/chat/completions",
        json=LONG,
        headers=dict(program.headers),
        timeout=PATIENCE,
    ) as running:
        lines = running.iter_lines()
        next(lines)
        os.kill(children_of(server)[0], signal.SIGKILL)
        assert [line for line in lines if line][-1] == "data: [DONE]"


def test_a_stop_lets_answers_end(server: ServerProcess, program: httpx.Client):
    with program.stream("POST", "/v1/chat/completions", json=LONG) as running:
        lines = running.iter_lines()
        next(lines)
        pids = children_of(server)
        assert len(pids) == WORKERS
        stopping, server.process = server.process, None
        assert stopping
        stopping.send_signal(signal.SIGTERM)
        assert [line for line in lines if line][-1] == "data: [DONE]"
    with stopping, Deadline(stopping):
        assert stopping.wait() == 0
    assert not any(map(is_running, pids))
    assert not [line for line in server.faults() if "ERROR" in line]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_all_of_them_lets_answers_end(
    server: ServerProcess, program: httpx.Client, number: signal.Signals
):
    """As Ctrl-C in a terminal and a stop by systemd do."""
    with program.stream("POST", "/v1/chat/completions", json=LONG) as running:
        lines = running.iter_lines()
        next(lines)
        stopping = server.process
        assert stopping
        for pid in (*children_of(server), stopping.pid):
            os.kill(pid, number)
        server.process = None
        assert [line for line in lines if line][-1] == "data: [DONE]"
    with stopping, Deadline(stopping):
        assert stopping.wait() == 0
    assert not [line for line in server.faults() if "ERROR" in line]


def test_programs_of_a_process_get_no_paths_of_modules(shared: ServerProcess):
    """A command for the keys may be of another interpreter."""
    wait_until(lambda: len(children_of(shared)) == WORKERS)
    for pid in children_of(shared):
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        found = {each for each in variables if each.startswith(b"PYTHONPATH=")}
        assert found <= {f"PYTHONPATH={os.environ.get('PYTHONPATH')}".encode()}


def test_they_end_with_the_process_that_has_the_engine(
    server: ServerProcess, program: httpx.Client
):
    assert program.get("/v1/models").status_code == 200
    pids = children_of(server)
    server.kill()
    wait_until(lambda: not any(map(is_running, pids)))
    server.start()
    assert program.get("/v1/models").status_code == 200


def test_only_one_process_runs_schedules_and_turns(
    shared: ServerProcess, shared_program: httpx.Client
):
    server, program = shared, shared_program
    assert program.get("/v1/models").status_code == 200
    wait_until(lambda: count_processes(server) == {True: 1, False: WORKERS})


def count_processes(server: ServerProcess) -> dict[bool, int]:
    printed = server.manage(
        *("shell", "-v0", "-c"),
        "from conversations.models import ProcessStatus;"
        "print(*ProcessStatus.objects.values_list('runs_turns', flat=True))",
    )
    words = printed.split()
    return {True: words.count("True"), False: words.count("False")}


def test_metrics_name_the_process(shared: ServerProcess, shared_program: httpx.Client):
    server = shared
    for _ in range(2):
        answer = shared_program.post("/v1/chat/completions", json=CHAT)
        assert answer.status_code == 200
    names = {"", *(f"gateway-{number}" for number in range(1, WORKERS + 1))}

    def labelled() -> bool:
        samples = read(scrape(server.url))
        assert value(samples, "parley_process_turns", state="running") == 0
        memory = [
            each for each in samples if each.name == "process_resident_memory_bytes"
        ]
        return {each.labels.get("process", "") for each in memory} == names

    wait_until(labelled)


def test_calls_are_recorded(shared: ServerProcess, shared_program: httpx.Client):
    server = shared
    tag = {"x-parley-tags": "recorded"}
    for _ in range(4):
        answer = shared_program.post("/v1/chat/completions", json=CHAT, headers=tag)
        assert answer.status_code == 200

    def count() -> str:
        return server.manage(
            *("shell", "-v0", "-c"),
            "from llm.models import ModelCall;"
            "print(ModelCall.objects.filter(tags='recorded').count())",
        ).strip()

    wait_until(lambda: count() == "4")


def test_without_the_option_there_are_no_processes(start_server: StartServer):
    server = start_server()
    assert children_of(server) == []


@pytest.mark.parametrize(
    ("environment", "problem"),
    [
        ({"GATEWAY_WORKERS": "65"}, "GATEWAY_WORKERS"),
        ({"GATEWAY_WORKERS": "two"}, "GATEWAY_WORKERS"),
        ({"GATEWAY_PORT": "99999"}, "GATEWAY_PORT"),
        ({"GATEWAY_WORKERS": "1", "PORT": "65535"}, "GATEWAY_PORT"),
    ],
)
def test_a_wrong_setting_is_named(
    tmp_path: Path, environment: dict[str, str], problem: str
):
    assert problem in ServerProcess(tmp_path / "data").refused(**environment)


def test_a_port_in_use_is_named(shared: ServerProcess, tmp_path: Path):
    other = ServerProcess(tmp_path / "data")
    port = shared.environment["GATEWAY_PORT"]
    refusal = other.refused(GATEWAY_WORKERS="1", GATEWAY_PORT=port)
    assert "GATEWAY_PORT" in refusal
    assert "--gateway-port" in refusal
