from __future__ import annotations

import io

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command

from conversations.models import AccessToken

pytestmark = pytest.mark.django_db


def create_token(*arguments: str) -> tuple[list[str], str]:
    """What it writes: lines of output, and the rest."""
    out, err = io.StringIO(), io.StringIO()
    call_command("create_token", *arguments, stdout=out, stderr=err)
    return out.getvalue().splitlines(), err.getvalue()


def test_the_last_line_is_a_token_of_that_user():
    alice = User.objects.create_user("alice")
    lines, _ = create_token("alice", "--label", "backup script")
    found = AccessToken.objects.find(lines[-1])
    assert found is not None
    assert (found.user, found.label) == (alice, "backup script")


def test_the_token_is_printed_once_and_stored_nowhere():
    User.objects.create_user("alice")
    lines, rest = create_token("alice")
    assert len(lines) == 1
    assert lines[0] not in rest
    row = AccessToken.objects.values().get()
    assert lines[0] not in repr(row)


def test_an_unknown_user_is_named():
    with pytest.raises(CommandError, match="There is no active user 'bob'"):
        create_token("bob")


def test_an_inactive_user_gets_no_token():
    User.objects.create_user("carol", is_active=False)
    with pytest.raises(CommandError, match="There is no active user 'carol'"):
        create_token("carol")


@pytest.mark.parametrize("days", ["0", "-5", "36501", "9999999999", "a week"])
def test_a_number_of_days_that_makes_no_token_is_refused(days: str):
    User.objects.create_user("alice")
    with pytest.raises(CommandError, match="from 1 to 36500"):
        create_token("alice", f"--days={days}")
    assert not AccessToken.objects.exists()


def test_a_token_ends_after_its_days():
    User.objects.create_user("alice")
    create_token("alice", "--days", "36500")
    (row,) = AccessToken.objects.all()
    assert row.expires_at is not None
    assert (row.expires_at - row.created_at).days in (36499, 36500)


def test_a_token_may_declare_any_tool_only_on_request():
    User.objects.create_user("alice")
    for options, expected in (([], False), (["--declares-any-tool"], True)):
        lines, _ = create_token("alice", *options)
        found = AccessToken.objects.find(lines[-1])
        assert found is not None
        assert found.declares_any_tool is expected
