from __future__ import annotations

from datetime import UTC, datetime

import pytest

from tools.errors import AddressRefused, ToolError
from tools.http.async_result import (
    LONGEST_WAIT,
    AsyncResultSpec,
    build_poll_request,
    find_job_url,
    is_pending,
    seconds_to_next_poll,
)
from tools.http.exchange import FetchedResponse

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
HOME = "https://api.test/cakes"


def fetched(status=202, body=b"", url=HOME, **headers) -> FetchedResponse:
    headers_sent = {name.replace("_", "-"): text for name, text in headers.items()}
    return FetchedResponse(status=status, url=url, body=body, headers=headers_sent)


@pytest.mark.parametrize(
    ("location", "url"),
    [
        ("/jobs/7", "https://api.test/jobs/7"),
        ("jobs/7", "https://api.test/jobs/7"),
        ("https://other.test/7", "https://other.test/7"),
        ("//other.test/7", "https://other.test/7"),
        ("", ""),
    ],
)
def test_a_location_is_read_from_where_the_answer_came(location, url):
    assert find_job_url(fetched(location=location), AsyncResultSpec()) == url


@pytest.mark.parametrize(
    ("body", "later", "url"),
    [
        (
            b'{"to": "/jobs/7"}',
            AsyncResultSpec(job_pointer="/to"),
            "https://api.test/jobs/7",
        ),
        (
            b'{"id": 7}',
            AsyncResultSpec(job_pointer="/id", job_url="https://api.test/jobs/{id}"),
            "https://api.test/jobs/7",
        ),
        (
            b'{"id": "../x"}',
            AsyncResultSpec(job_pointer="/id", job_url="https://api.test/jobs/{id}"),
            "https://api.test/jobs/..%2Fx",
        ),
    ],
)
def test_the_body_may_contain_an_address_or_an_id(body, later, url):
    assert find_job_url(fetched(body=body), later) == url


@pytest.mark.parametrize("body", [b"no json", b"{}", b"[]"])
def test_a_body_without_address_or_id_is_an_error(body):
    with pytest.raises(ToolError):
        find_job_url(fetched(body=body), AsyncResultSpec(job_pointer="/id"))


@pytest.mark.parametrize("job_url", ["", "https://api.test/jobs/{id}"])
@pytest.mark.parametrize("job", [b"null", b'""', b"true", b"[]", b"{}"])
def test_what_is_no_address_and_no_id_names_no_job(job, job_url):
    spec = AsyncResultSpec(job_pointer="/job", job_url=job_url)
    assert find_job_url(fetched(body=b'{"job": %s}' % job), spec) == ""


def test_no_way_leads_from_https_to_http():
    with pytest.raises(AddressRefused, match="https to http"):
        find_job_url(fetched(location="http://api.test/jobs/7"), AsyncResultSpec())


def test_an_address_that_is_too_long_to_store_is_an_error():
    with pytest.raises(ToolError, match="more than 500"):
        find_job_url(fetched(location="/" + "x" * 500), AsyncResultSpec())


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("30", 30),
        ("0", 1),
        ("9" * 50, LONGEST_WAIT),
        ("Thu, 01 Jan 2026 12:00:20 GMT", 20),
        ("Thu, 01 Jan 2026 12:00:20", 20),
        ("Thu, 01 Jan 2026 11:00:00 GMT", 1),
        ("soon", 10),
        ("-5", 10),
        ("²", 10),
        ("", 10),
    ],
)
def test_a_server_sets_the_time_of_the_next_poll(header, seconds):
    assert (
        seconds_to_next_poll(fetched(retry_after=header), AsyncResultSpec(), NOW)
        == seconds
    )


@pytest.mark.parametrize(
    ("status", "body", "pending"),
    [
        (202, b"", True),
        (503, b"", True),
        (429, b"", True),
        (200, b'{"state": "queued"}', True),
        (200, b'{"state": 1}', True),
        (200, b'{"state": "done"}', False),
        (404, b'{"state": "queued"}', False),
        (500, b"", False),
    ],
)
def test_a_status_or_a_state_means_pending(status, body, pending):
    later = AsyncResultSpec(
        state_pointer="/state", pending_states=frozenset({"queued", "1"})
    )
    assert is_pending(fetched(status, body), later) is pending


def test_a_state_that_is_not_there_is_an_error():
    with pytest.raises(ToolError, match="has nothing at '/state'"):
        is_pending(fetched(200, b"{}"), AsyncResultSpec(state_pointer="/state"))


@pytest.mark.parametrize(
    ("url", "is_home"),
    [
        ("https://api.test/jobs/7", True),
        ("https://api.test:443/jobs/7", True),
        ("https://API.test/jobs/7", True),
        ("https://api.test:444/jobs/7", False),
        ("http://api.test/jobs/7", False),
        ("https://jobs.api.test/7", False),
    ],
)
def test_headers_go_to_the_tools_own_origin_alone(url, is_home):
    plain = {"X-Tenant": "t1", "Content-Type": "application/json"}
    request = build_poll_request(url, HOME, plain, {"X-Key": "secret"})
    assert request.method == "GET"
    assert ("X-Tenant" in request.headers) is is_home
    assert bool(request.secret_headers) is is_home
    assert "Content-Type" not in request.headers
