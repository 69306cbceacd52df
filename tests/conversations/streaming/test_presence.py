from __future__ import annotations

from conversations.http import presence
from conversations.http.presence import AGAIN, FORGOTTEN, Presence


def test_pages_learn_of_one_another_and_of_the_end():
    ada, bob = Presence("ada"), Presence("bob")
    assert ada.receive(bob.here(0, asks=True), 0)  # to be answered
    assert not bob.receive(ada.here(0), 0)
    assert ada.changed_names(0) == ["bob"]
    assert bob.changed_names(0) == ["ada"]
    assert ada.changed_names(1) is None
    assert not ada.receive(bob.gone(), 2)
    assert ada.changed_names(2) == []


def test_a_person_with_two_pages_is_one_name_and_does_not_see_themselves():
    first, second, bob = Presence("ada"), Presence("ada"), Presence("bob")
    for page in (first, second):
        bob.receive(page.here(0), 0)
    first.receive(second.here(0), 0)
    assert bob.changed_names(0) == ["ada"]
    assert first.changed_names(0) is None
    bob.receive(first.gone(), 1)
    assert bob.changed_names(1) is None


def test_a_page_that_is_silent_is_forgotten_and_one_that_lives_is_not():
    ada, bob = Presence("ada"), Presence("bob")
    ada.receive(bob.here(0), 0)
    ada.changed_names(0)
    assert not bob.is_due(AGAIN - 1)
    assert bob.is_due(AGAIN)
    ada.receive(bob.here(AGAIN), AGAIN)
    assert ada.changed_names(FORGOTTEN) is None
    assert ada.changed_names(FORGOTTEN + AGAIN) == []


def test_names_and_pages_are_bounded():
    ada = Presence("ada")
    for number in range(presence.MAX_PAGES + 50):
        ada.receive(Presence(f"user-{number:03}").here(0), 0)
    assert len(ada.changed_names(0) or ()) == presence.MAX_NAMES
