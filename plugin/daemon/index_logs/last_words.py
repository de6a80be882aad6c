"""The two sources of a restored subscription: its index log, and the local data that gives way to it.

Of one history and under one seal of the cursor, the later owner's word counts: an owner that could not read
the log changed only the local data; one on another machine wrote only the log. Positions known acknowledged
in one source stay so, unless a later owner contradicts. Pure functions, but for `take_over`.

Example: the log knows a acknowledged, under owner 8; the local data of owner 9 knows b, and took a back.
Owner 9 is later: b is acknowledged, a is not.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tidegate.index import DelayIndex, PositionSet
from tidegate.plugin.daemon.histories import Break, compare, find_break
from tidegate.plugin.wire.messages import Open

LATER_OWNER = "a later owner wrote the log"


@dataclass(frozen=True, slots=True)
class LastWords:
    """The local data's news for the log's index.

    heard: its claim, seal and mark-delete position count, and with them: acknowledged: positions not
        acknowledged in the log; taken_back: positions acknowledged in the log, and not at a later owner.
    undone: the sign that the cursor went back after the log's last write, None without one.
    forgotten: positions with acknowledgements that no longer count; why: the reason.
    """

    heard: bool = False
    acknowledged: PositionSet = field(default_factory=PositionSet)
    taken_back: PositionSet = field(default_factory=PositionSet)
    undone: Break | None = None
    forgotten: PositionSet = field(default_factory=PositionSet)
    why: str = ""

    @property
    def changes(self) -> bool:
        """True if the index then differs from its log."""
        return bool(self.acknowledged or self.taken_back or self.undone)


def does_not_give_way(former: DelayIndex | None, index: DelayIndex, request: Open) -> Break | None:
    """Why the local data stays and the log does not count: it is of another history.

    But a log that shows a reset, or is of a later owner, proves more than sound local data: the cursor went
    back since. Then both are emptied.
    """
    if former is None or former.incarnation != request.incarnation or former.state.empty:
        return None
    if find_break(former.state, request) is not None:
        return None
    found = find_break(index.state, request)
    log_is_older = index.state.claim.epoch < former.state.claim.epoch
    older = Break.LOST is not found is not Break.MARK_DELETE and log_is_older
    return found if found is Break.OLD or older else None


def last_words(former: DelayIndex | None, index: DelayIndex, request: Open) -> LastWords:
    """The part of the local data that counts beside the log's index."""
    if former is None or former.incarnation != request.incarnation or find_break(index.state, request):
        return LastWords()
    local, logged = former.state, index.state
    later = local.claim.epoch - logged.claim.epoch
    found = compare(local, request)
    same_seal = local.generation == logged.generation
    acknowledged = local.acknowledged.difference(logged.acknowledged if same_seal else PositionSet())
    acknowledged.discard_up_to(*request.mark_delete)  # a later owner's mark-delete position has passed these
    if found is not None:
        # The log still has acknowledgements taken back by a reset amid an unload, or missing from a backup.
        proves = found not in {Break.OLD, Break.LOST} and later >= 0
        return LastWords(undone=found if proves else None, forgotten=acknowledged, why=found.value)
    if not local.generation or local.generation != request.generation:
        return LastWords()  # the cursor was reset, or the stored data is damaged
    if later < 0:
        # By an UNACK, the later owner may know that they are not acknowledged.
        return LastWords(forgotten=acknowledged, why=LATER_OWNER)
    taken_back = PositionSet()
    if same_seal and local.claim.epoch:  # else the order of the two is unknown
        taken_back = local.held_among(logged.acknowledged)
    return LastWords(heard=True, acknowledged=acknowledged, taken_back=taken_back)


def take_over(index: DelayIndex, former: DelayIndex, words: LastWords) -> None:
    """Give the log's index the news and the claim of the local data, as if from a broker.

    Without the claim, positions from after the log's end would look like a restored Pulsar, as would a
    mark-delete position from before a reset.
    """
    if words.undone is not None:
        index.begin_generation(0)
    if not words.heard:
        return
    local, logged = former.state, index.state
    mark = max(local.mark, logged.mark) if logged.generation == local.generation else local.mark
    index.begin_claim(local.claim)
    index.begin_generation(local.generation)
    index.mark_delete(*mark)
    index.unacknowledge(words.taken_back)
    index.acknowledge(words.acknowledged)
