"""The bench `takeover` tells from counters how much of a topic was read again."""

from __future__ import annotations

from bench.takeover.reads import Given, Reading, given_since, read_again


def test_what_is_published_and_delivered_meanwhile_is_not_read_again() -> None:
    assert Reading(read=240, added=None, stored=100, delivered=120).again == 20
    assert Reading(read=240, added=115, stored=100, delivered=120).again == 20


def test_what_a_cache_hides_from_one_counter_the_daemons_shows() -> None:
    """150 were read again, and 200 of those that came meanwhile were never read from BookKeeper."""
    late = Reading(read=150 + 20, added=150 + 100, stored=100, delivered=120)
    assert late.again == 150


def test_what_the_daemon_is_not_given_a_reading_at_the_first_due_message_shows() -> None:
    """300 that are held were read again before the daemon had answered: no counter of the daemon's."""
    early = Reading(read=305, added=4, stored=4, delivered=1)
    late = Reading(read=320, added=100, stored=100, delivered=120)
    assert late.again == 100
    assert read_again([early, late]) == 300


def test_nothing_read_again_is_nothing_and_not_less() -> None:
    assert read_again([Reading(0, 4, 5, 1), Reading(90, 100, 100, 0)]) == 0


def test_a_daemon_that_was_started_meanwhile_counts_from_nothing() -> None:
    before = {"a": Given(run=17, entries=100_000), "b": Given(run=18, entries=5_000)}
    assert given_since(before, "b", Given(18, 5_040)) == 40
    assert given_since(before, "a", Given(99, 30)) == 30
