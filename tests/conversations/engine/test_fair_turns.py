"""Authors are served in turn, whatever the number of their turns."""

from __future__ import annotations

from conversations.engine.process.fair_turns import ClaimableTurn, FairTurns

ANNA, BOB = 1, 2


def waiting(author: int, count: int, first: int = 1) -> list[ClaimableTurn]:
    places = range(first, first + count)
    return [ClaimableTurn(f"{author}-{place}", author, place) for place in places]


def ids_of(turns: list[ClaimableTurn]) -> list[str]:
    return [turn.turn_id for turn in turns]


def test_the_author_who_waited_longest_is_next():
    turns, taken = FairTurns(), []
    left = [*waiting(ANNA, 9), *waiting(BOB, 1)]
    for _ in range(3):
        [turn_id] = ids_of(turns.choose(left, 1))
        taken.append(turn_id)
        left = [turn for turn in left if turn.turn_id != turn_id]
        if turn_id.startswith(str(ANNA)):  # it is over, so the others move up
            left = [turn._replace(place=max(1, turn.place - 1)) for turn in left]
    assert taken == ["1-1", "2-1", "1-2"]


def test_turns_that_run_already_count():
    found = [*waiting(ANNA, 3, first=4), *waiting(BOB, 2)]
    assert ids_of(FairTurns().choose(found, 3)) == ["2-1", "2-2", "1-4"]


def test_a_turn_that_is_only_to_be_ended_comes_first():
    ended = ClaimableTurn("ended", ANNA, 0)
    assert FairTurns().choose([*waiting(BOB, 2), ended], 1) == [ended]
