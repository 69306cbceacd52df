"""An earlier version and this one side by side over one database, while one replaces
the other: no turn is lost, none is answered twice, and nothing fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.versions.old_version import MissingCommit, NoHistory, unpack
from tests.chaos.versions.upgrade import upgrade
from tests.scaled import REDIS, need_servers

pytestmark = [pytest.mark.scaled, pytest.mark.timeout(900), pytest.mark.slow]

TURNS = 200  # while both versions run


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    need_servers()
    try:
        return unpack(tmp_path_factory.mktemp("old") / "code")
    except NoHistory:
        pytest.skip("not a git checkout, so without an earlier version")


@pytest.mark.parametrize(
    ("redis", "turns"),
    [
        pytest.param(REDIS, TURNS, id="redis"),
        # Minutes for the same law; test_postgresql_alone.py has the delivery itself.
        pytest.param(
            None, TURNS // 4, id="postgresql alone", marks=pytest.mark.nightly
        ),
    ],
)
async def test_turns_go_on_while_a_version_replaces_another(
    tmp_path: Path, old: Path, redis: str | None, turns: int
):
    report = await upgrade(tmp_path, old, seed=7, turns=turns, redis=redis)
    print(*report.lines(), sep="\n")
    assert report.turns >= turns
    assert report.violations == []


def test_a_commit_that_is_not_there_is_named(tmp_path: Path):
    with pytest.raises(MissingCommit, match="earlier version 0123abcd is not in this"):
        unpack(tmp_path / "code", "0123abcd")
