"""Makes a history from a seed: a world, a mix of faults, and the steps. Sees nothing of the run."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from tests.sim.config import Config
from tests.sim.history import History, Step

_STEPS = (10, 120)

Fault = tuple[str, dict[str, Any]]
"""An action and its arguments."""

FAULTS = (
    *("crash", "move", "consumer", "seek", "wire", "clock", "disk", "damage", "freeze", "power", "width"),
    *("home", "subscription", "rebuild", "log", "reads", "objects", "settings", "clear", "backup", "persist"),
    *("answers", "behind", "forward", "undone", "pause", "change", "unheard", "absent", "loss", "append"),
    *("first", "look", "landing", "repair"),
)
_LATER = ("backup", "answers")  # drawn apart, so that older seeds keep their kinds
# Put into a drawn history, so that older seeds keep their steps.
_PUT_IN = (
    *("persist", "behind", "forward", "undone", "pause", "change", "unheard", "absent", "loss"),
    *("append", "first", "look", "landing", "repair"),
)
_PUT_IN_SHARE = 0.33  # of the histories, unless there is no other kind
_OF_LOGS = {"behind", "append", "landing", "repair"}
_LEAST = ("persist_age_ms", "retry_ms", "journal_budget_bytes", "quarantine_bytes")
_LEAST_SHARE = 0.1
_LOSS_SHARE = 0.1  # it excuses much
_NEAR_MS = 10_000
_KINDS = (1, 2, 2, 3, 3, 4, 11)  # of a history; with more at once each of them is seldom met
RESET = (
    *("slice_width_ms", "slice_width_auto", "staging_budget_bytes", "carry_ms", "persist_age_ms"),
    *("journal_budget_bytes", "journal_records", "block_entries", "chunk_entries", "merge_runs"),
    *("compaction_entries", "drop_entries", "prefetch_ms", "pop_scan_entries", "write_piece_bytes"),
    *("quarantine_bytes", "commit_entries", "commit_interval_us", "credit_max"),
)
"""Settings of the daemon that may change from one start to the next."""
ANY: Mapping[str, Any] = MappingProxyType({})


def generate(seed: int, faults: Collection[str] = FAULTS, settings: Mapping[str, Any] = ANY) -> History:
    """A seed's history: with some of these kinds of faults, in a random world but for these settings (see
    `config`).
    """
    return _Generator(seed, faults, settings).history()


class _Generator:
    def __init__(self, seed: int, faults: Collection[str], settings: Mapping[str, Any]) -> None:
        self.seed = seed
        wanted = [kind for kind in FAULTS if kind in faults and kind not in _PUT_IN]
        kinds = [kind for kind in wanted if kind not in _LATER]
        self.luck = random.Random(seed)  # noqa: S311 a simulation
        # A few kinds of faults for each history: so rare combinations come up.
        self.faults = self.luck.sample(kinds, min(len(kinds), self.luck.choice(_KINDS)))
        if "damage" in self.faults and len(kinds) > 1 and self.luck.random() < 0.3:
            self.faults.remove("damage")  # it excuses much
        self.faults += self._later(wanted)
        self.fault_share = self.luck.choice((0.1, 0.3, 0.5))
        self.after_a_fault = False
        self._persists = random.Random(f"failing persists of {seed}")  # noqa: S311 a simulation
        self.fails_persists = "persist" in faults and (not wanted or self._persists.random() < _PUT_IN_SHARE)
        config = self._with_index_log(self._config(), wanted=not wanted and bool(_OF_LOGS & set(faults)))
        self.config = replace(self._with_more(config), **settings)
        self._behind = random.Random(f"logs that are behind of {seed}")  # noqa: S311 a simulation
        self.leaves_behind = (
            "behind" in faults
            and (self.config.index_log and not self.config.shared_daemon)
            and (not wanted or self._behind.random() < _PUT_IN_SHARE)
        )
        self._forward = random.Random(f"moves forward of {seed}")  # noqa: S311 a simulation
        self.moves_forward = "forward" in faults and (not wanted or self._forward.random() < _PUT_IN_SHARE)
        self._undone = random.Random(f"undone resets of {seed}")  # noqa: S311 a simulation
        self.undoes_resets = "undone" in faults and (not wanted or self._undone.random() < _PUT_IN_SHARE)
        self._pauses = random.Random(f"pauses of {seed}")  # noqa: S311 a simulation
        self.pauses = "pause" in faults and (not wanted or self._pauses.random() < _PUT_IN_SHARE)
        self._changes = random.Random(f"changes of {seed}")  # noqa: S311 a simulation
        self.changes = "change" in faults and (not wanted or self._changes.random() < _PUT_IN_SHARE)
        self._unheard = random.Random(f"unheard daemons of {seed}")  # noqa: S311 a simulation
        self.leaves_unheard = "unheard" in faults and (not wanted or self._unheard.random() < _PUT_IN_SHARE)
        if self.leaves_unheard and "ranges_max" not in settings:
            self.config = replace(self.config, ranges_max=self._unheard.choice((1, 1, 3)))
        self._absent = random.Random(f"absent blocks of {seed}")  # noqa: S311 a simulation
        self.moves_absent_blocks = (
            "absent" in faults
            and (self.config.index_log and not self.config.shared_daemon and not self.config.log_inline_bytes)
            and (not wanted or self._absent.random() < _PUT_IN_SHARE)
        )
        self._loss = random.Random(f"lost data of {seed}")  # noqa: S311 a simulation
        self.loses_data = "loss" in faults and (not wanted or self._loss.random() < _LOSS_SHARE)
        if self.loses_data and "horizon_ms" not in settings:
            self.config = replace(self.config, horizon_ms=_NEAR_MS)
        self._append = random.Random(f"failing appends of {seed}")  # noqa: S311 a simulation
        self.fails_appends = (
            "append" in faults
            and self.config.index_log
            and (not wanted or self._append.random() < _PUT_IN_SHARE)
        )
        self._first = random.Random(f"first owners of {seed}")  # noqa: S311 a simulation
        self.has_first_owners = "first" in faults and (not wanted or self._first.random() < _PUT_IN_SHARE)
        self._landing = random.Random(f"landings of {seed}")  # noqa: S311 a simulation
        self.ends_landings = (
            "landing" in faults
            and (self.config.index_log and not self.config.shared_daemon)
            and (not wanted or self._landing.random() < _PUT_IN_SHARE)
        )
        if self.ends_landings and "log_piece_bytes" not in settings:
            self.config = replace(self.config, log_piece_bytes=50)
        self._repair = random.Random(f"repairs of {seed}")  # noqa: S311 a simulation
        self.repairs = (
            "repair" in faults
            and self.config.index_log
            and (not wanted or self._repair.random() < _LOSS_SHARE)
        )
        self._looks = random.Random(f"looks of {seed}")  # noqa: S311 a simulation
        self.looks = "look" in faults and (not wanted or self._looks.random() < _PUT_IN_SHARE)
        self._third = random.Random(f"third subscription of {seed}")  # noqa: S311 a simulation

    def history(self) -> History:
        steps = [self._step() for _ in range(self.luck.randint(*_STEPS))]
        if self.fails_persists:
            for _ in range(self._persists.randint(1, 4)):
                at = self._persists.randint(0, len(steps))
                steps[at:at] = self._failing_persist()
        if self.leaves_behind:
            at = self._behind.randint(0, len(steps))
            steps[at:at] = self._log_behind()
        if self.moves_forward:
            for _ in range(self._forward.randint(1, 3)):
                at = self._forward.randint(0, len(steps))
                steps[at:at] = self._forward_move()
        if self.undoes_resets:
            for _ in range(self._undone.randint(1, 3)):
                at = self._undone.randint(0, len(steps))
                steps[at:at] = self._undone_reset()
        if self.pauses:
            for _ in range(self._pauses.randint(1, 3)):
                at = self._pauses.randint(0, len(steps))
                steps[at:at] = self._pause(resumes=False)
                at = self._pauses.randint(at, len(steps))
                steps[at:at] = self._pause(resumes=True)
        if self.changes:
            for _ in range(self._changes.randint(1, 6)):
                at = self._changes.randint(0, len(steps))
                steps[at:at] = self._change()
        if self.leaves_unheard:
            for _ in range(self._unheard.randint(1, 2)):
                at = self._unheard.randint(0, len(steps))
                steps[at:at] = self._unheard_daemon()
        if self.moves_absent_blocks:
            at = self._absent.randint(0, len(steps))
            steps[at:at] = self._absent_blocks()
        if self.loses_data:
            at = self._loss.randint(0, len(steps))
            steps[at:at] = self._lost_data()
        if self.has_first_owners:
            at = self._first.randint(0, len(steps))
            steps[at:at] = self._first_owner()
        if self.ends_landings:
            at = self._landing.randint(0, len(steps))
            steps[at:at] = self._ended_landing()
        if self.repairs:
            steps += self._damaged_block()  # it excuses much
        if self.looks:
            for _ in range(self._looks.randint(1, 4)):
                at = self._looks.randint(0, len(steps))
                steps[at:at] = [self._look()]
        if self.fails_appends:
            steps += self._failing_appends()  # its owner stays
        return History(self.config, tuple(steps), self.seed)

    def _later(self, wanted: list[str]) -> list[str]:
        """Kinds of faults not drawn at first."""
        luck = random.Random(f"kinds of {self.seed}")  # noqa: S311 a simulation
        later = [kind for kind in _LATER if kind in wanted]
        count = sum(kind != "answers" for kind in wanted)  # so that older seeds have their backups
        drawn = [kind for kind in later if luck.random() * count < luck.choice(_KINDS)]
        return 2 * drawn  # a backup shows only with a second one

    def _failing_persist(self) -> list[Step]:
        """The disk refuses a persist's writes and takes the next one's; then the daemon dies, perhaps with
        the broker. Its second half forgets content of the first one only, unless the same ledger has changed
        once more: so little else comes in between.
        """
        luck, config = self._persists, self.config
        turn_ms = 2 * config.maintain_interval_ms
        kinds, write = luck.choice(("A", "A", "A", "H", "B", "M")), luck.choice((1, 1, 2))
        fail = {"write": write, "written": luck.random() < 0.2, "kinds": kinds}
        told = {"client": luck.randrange(6), "skip": luck.choice((0, 1, 2)), "count": luck.choice((1, 3))}
        down_ms, number = luck.choice((0, 50, 1_000)), luck.randrange(2)
        dies = luck.choice(("kill_daemon", "stop_daemon"))
        wait_ms = luck.randint(config.persist_age_ms // 2, config.persist_age_ms + turn_ms)
        again_ms = luck.randint(turn_ms, 2 * (config.retry_ms + turn_ms))
        steps: list[tuple[int, str, dict[str, Any]]] = [
            # Both machines: either may have the topic.
            (0, "fail_write", {"machine": 0, **fail}),
            (0, "fail_write", {"machine": 1, **fail}),
            (luck.randint(0, 60), "acknowledge", told),
            (wait_ms, "wait", {}),
            (again_ms, dies, {"daemon": 0, "down_ms": down_ms}),
            (0, dies, {"daemon": 1, "down_ms": down_ms}),
        ]
        if luck.random() < 0.5:
            steps.append((0, "kill_broker", {"broker": number, "down_ms": down_ms}))
        return [Step(after_ms, do, args, luck.getrandbits(32)) for after_ms, do, args in steps]

    def _log_behind(self) -> list[Step]:
        """A daemon opens an index while the home of its log, written by another daemon, is away, and goes on
        without; acknowledgements are durable there and in no log. Then the index is opened again, and the
        other's log is read.
        """
        luck, config = self._behind, self.config
        wait_ms = luck.randint(8_100, 9_500)  # `RESTORE_SECONDS`, and an answer
        back_ms = luck.randint(100, 5_000)
        soon_ms = luck.choice((100, 1_000))
        delays = [luck.randint(0, luck.choice((500, 5_000, 12_000))) for _ in range(luck.randint(3, 20))]
        told: Fault = (
            "acknowledge",
            {"client": luck.randrange(6), "skip": luck.choice((0, 1, 2)), "count": luck.choice((1, 3, 100))},
        )
        again: tuple[Fault, ...] = (
            ("cut", {"broker": 0}),
            ("kill_broker", {"broker": 0, "down_ms": luck.choice((0, 50))}),
            ("kill_daemon", {"daemon": 0, "down_ms": luck.choice((0, 50))}),
        )
        steps: list[tuple[int, Fault]] = [
            (0, ("unload", {"to": 0})),
            (luck.randint(soon_ms, 2_000), ("publish", {"delays_ms": delays})),
            (luck.randint(soon_ms, 2_000), ("unload", {"to": 1})),
            (luck.randint(soon_ms, 2_000), ("publish", {"delays_ms": delays})),
            (luck.randint(soon_ms, 2_000), ("bookies_away", {"for_ms": 2 * soon_ms + wait_ms + back_ms})),
            (0, ("unload", {"to": 0})),
            (wait_ms, told),
            (luck.randint(0, soon_ms), told),
            (luck.randint(config.ack_poll_ms, config.ack_poll_ms + soon_ms), luck.choice(again)),
        ]
        return [Step(after_ms, do, args, luck.getrandbits(32)) for after_ms, (do, args) in steps]

    def _absent_blocks(self) -> list[Step]:
        """Late messages lie in blocks, and the log only names these; the topic moves, and moves on when the
        next owner's log counts, before all blocks are here.
        """
        luck = self._absent
        to = luck.randrange(2)
        delays = [luck.randint(15_000, 40_000) for _ in range(luck.randint(20, 40))]
        stays_ms = luck.choice((200, 500, 1_500))
        steps: list[tuple[int, Fault]] = [
            (0, ("unload", {"to": to})),
            (luck.randint(500, 1_500), ("publish", {"delays_ms": delays})),
            (luck.randint(3_000, 6_000), ("unload", {"to": 1 - to})),
            (stays_ms, ("unload", {"to": to})),
            (stays_ms, ("unload", {"to": 1 - to})),
            (luck.choice((0, 3_000)), ("wait", {})),
        ]
        return [Step(after_ms, do, args, luck.getrandbits(32)) for after_ms, (do, args) in steps]

    def _lost_data(self) -> list[Step]:
        """Daemons lose their data while messages are near at their broker; these are moved far away, and the
        index is made to let go of them: they are read again.
        """
        luck = self._loss
        subscription = luck.randrange(self.config.subscriptions)
        delays = [luck.randint(_NEAR_MS // 2, _NEAR_MS - 1_000) for _ in range(luck.randint(1, 12))]
        down_ms = luck.choice((0, 50))
        moved = {"subscription": subscription, "share": 0, "count": 100}
        steps: list[tuple[int, Fault]] = [
            (luck.choice((0, 100)), ("publish", {"delays_ms": delays})),
            (luck.randint(300, 1_000), ("lose_data", {"machine": 0, "down_ms": down_ms})),
            (0, ("lose_data", {"machine": 1, "down_ms": down_ms})),
            (luck.randint(1_000, 2_500), ("reschedule", {"in_ms": luck.randint(12_000, 30_000), **moved})),
            (
                luck.randint(200, 1_000),
                ("rebuild", {"subscription": subscription, "share": 0, "let_go": luck.choice((50, 100))}),
            ),
            (luck.choice((0, 1_000)), ("wait", {})),
        ]
        return [Step(after_ms, do, args, luck.getrandbits(32)) for after_ms, (do, args) in steps]

    def _failing_appends(self) -> list[Step]:
        """Appends to a begun index log fail for a moment, and its owner stays."""
        luck = self._append
        for_ms = luck.randint(100, 1_000)
        begun_ms = luck.randint(1_000, 3_000)
        delays = [luck.randint(0, 8_000) for _ in range(8)]
        away: Fault = luck.choice(
            (
                ("bookies_away", {"for_ms": for_ms}),
                ("spoil_answers", {"op": "APPEND", "fate": "failed", "share": 1.0, "for_ms": for_ms}),
            )
        )
        told = {"skip": luck.choice((0, 1)), "count": luck.choice((1, 3))}
        steps: list[tuple[int, Fault]] = [
            (luck.choice((0, 500)), ("unload", {"to": luck.randrange(2)})),
            (
                luck.randint(100, 1_000),
                ("publish", {"delays_ms": delays}),
            ),
            (begun_ms, away),
        ]
        for _ in range(luck.randint(1, 4)):
            after_ms = luck.choice((0, 20, for_ms // 4))
            steps.append((after_ms, ("publish", {"delays_ms": [luck.randint(1_000, 20_000)]})))
            steps.append((after_ms, ("acknowledge", {"client": luck.randrange(6), **told})))
        return [Step(after_ms, do, args, luck.getrandbits(32)) for after_ms, (do, args) in steps]

    def _ended_landing(self) -> list[Step]:
        """A daemon ends while it reads another's log and has written a part of it; it goes on, or the topic
        moves away again.
        """
        luck = self._landing
        to = luck.randrange(2)
        delays = [luck.randint(5_000, 40_000) for _ in range(luck.randint(10, 40))]
        ends = {"daemon": to, "down_ms": luck.choice((0, 50, 1_000))}
        then = luck.choice(("kill_daemon", "stop_daemon"))
        trap: dict[str, Any] = {
            "op": "READ",
            "request": luck.choice((2, 2, 3, 4)),
            "then": {"do": then, **ends},
        }
        end: Fault = luck.choice(
            (("at_log_request", trap), *[("kill_at_write", {"write": luck.randint(2, 5), **ends})] * 2)
        )
        steps: list[tuple[int, Fault]] = [
            (0, ("unload", {"to": 1 - to})),
            (luck.randint(500, 1_500), ("publish", {"delays_ms": delays})),
            (luck.randint(500, 2_000), ("publish", {"delays_ms": delays[:5]})),
            (luck.randint(500, 3_000), end),
            (0, ("unload", {"to": to})),
            (luck.randint(500, 3_000), ("unload", {"to": luck.choice((to, 1 - to))})),
        ]
        return [Step(after_ms, do, args, luck.getrandbits(32)) for after_ms, (do, args) in steps]

    def _damaged_block(self) -> list[Step]:
        """A block that an index log has is damaged before its messages are due."""
        luck = self._repair
        delays = [luck.randint(4_000, 9_000) for _ in range(luck.randint(20, 40))]
        steps: list[tuple[int, Fault]] = [
            (0, ("unload", {"to": luck.randrange(2)})),
            (luck.randint(500, 1_500), ("publish", {"delays_ms": delays})),
            (luck.randint(1_500, 3_500), ("damage", {"machine": 0, "kinds": "B"})),
            (0, ("damage", {"machine": 1, "kinds": "B"})),
            (luck.choice((0, 8_000)), ("wait", {})),
        ]
        return [Step(after_ms, do, args, luck.getrandbits(32)) for after_ms, (do, args) in steps]

    def _look(self) -> Step:
        """Somebody lists a subscription's messages, and reads the status, in any state."""
        luck = self._looks
        args = {
            "subscription": luck.randrange(self.config.subscriptions),
            "limit": luck.choice((1, 3, 10, 1_000)),
            "key": luck.choice(("", "", "even")),
        }
        return Step(luck.choice((0, 20, 500)), "look", args, luck.getrandbits(32))

    def _first_owner(self) -> list[Step]:
        """A subscription is made anew while daemons are away or silent, perhaps with its former index. Its
        first owner decides without them; they come back, and something happens while they are told.
        """
        luck = self._first
        away_ms = luck.choice((200, 1_500, 3_000, 7_000, 7_000))
        subscription = luck.randrange(self.config.subscriptions)
        delays = [luck.randint(0, luck.choice((300, 3_000, 10_000))) for _ in range(luck.randint(3, 20))]
        number, down_ms = luck.randrange(2), luck.choice((0, 50, 1_000))
        kill = luck.random() < 0.5
        away: tuple[Fault, Fault] = (
            ("kill_daemon", {"daemon": 0, "down_ms": away_ms}),
            ("kill_daemon", {"daemon": 1, "down_ms": away_ms}),
        )
        told = {
            "client": luck.randrange(6),
            "skip": luck.choice((0, 1, 2)),
            "count": luck.choice((1, 3, 100)),
        }
        amid: tuple[Fault, ...] = (
            ("acknowledge", told),
            ("acknowledge", told),
            ("kill_broker", {"broker": number, "down_ms": down_ms}),
            ("kill_both", {"broker": number, "down_ms": down_ms}),
            ("kill_daemon", {"daemon": number, "down_ms": down_ms}),
            ("unload", {"to": number}),
            ("seek", {"to": luck.choice((0, 500, 1_000)), "subscription": subscription}),
            ("rebuild", {"subscription": subscription, "share": 100, "let_go": 0}),
            ("cut", {"broker": number}),
        )
        steps: list[tuple[int, Fault]] = [
            (luck.choice((0, 300)), ("publish", {"delays_ms": delays})),
            *((luck.choice((0, 500)), each) for each in (away if kill else self._frozen(away_ms))),
            (
                luck.choice((0, 20)),
                ("unsubscribe", {"subscription": subscription, "to": luck.choice((0, 500, 1_000))}),
            ),
            (luck.choice((0, 200, 5_500)), ("publish", {"delays_ms": delays})),
            (luck.randint(0, away_ms), luck.choice(amid)),
            (luck.choice((0, 100, away_ms)), luck.choice(amid)),
            (luck.choice((0, 1_000, 3_000)), ("wait", {})),
        ]
        return [Step(after_ms, do, args, luck.getrandbits(32)) for after_ms, (do, args) in steps]

    def _forward_move(self) -> list[Step]:
        """Messages are acknowledged behind gaps and their consumers go, so that no tracker puts a seal; a
        skip closes a gap, and takes the seal from those beyond the next one. Then another owner loads the
        cursor.
        """
        luck = self._forward
        clients = range(self.config.clients)
        delays = [luck.randint(0, 300) for _ in range(luck.randint(10, 30))]
        told = {"skip": luck.choice((2, 3, 5)), "count": luck.choice((1, 3, 100))}
        skipped = {"subscription": luck.randrange(self.config.subscriptions), "count": luck.choice((1, 1, 2))}
        ends: Fault = luck.choice(
            (
                ("unload", {"to": 0}),
                ("unload", {"to": 1}),
                ("kill_broker", {"broker": luck.randrange(2), "down_ms": luck.choice((0, 50))}),
            )
        )
        steps: list[tuple[int, Fault]] = [
            *((0, ("pace", {"client": each, "ack_after_ms": -1})) for each in clients),
            (0, ("publish", {"delays_ms": delays})),
            (luck.randint(400, 1_500), ("wait", {})),
            *((0, ("acknowledge", {"client": each, **told})) for each in clients),
            *((0, ("disconnect", {"client": each})) for each in clients),
            (luck.randint(0, 1_500), ("skip", skipped)),
            (luck.choice((0, 100, 2_500, 2_500)), ends),
            *((luck.randint(0, 1_000), ("connect", {"client": each})) for each in clients),
        ]
        return [Step(after_ms, do, args, luck.getrandbits(32)) for after_ms, (do, args) in steps]

    def _unheard_daemon(self) -> list[Step]:
        """More messages are acknowledged than the cursor's record has room for, and the topic is loaded anew.
        Before its daemon, frozen meanwhile, has answered, or before it is asked once more, mark-delete moves,
        the cursor is reset, consumers come and go.
        """
        luck = self._unheard
        clients = range(self.config.clients)
        delays = [luck.randint(0, 300) for _ in range(luck.randint(5, 30))]
        told = {"skip": luck.choice((0, 1, 2, 3)), "count": luck.choice((3, 100))}
        frozen_ms = luck.choice((300, 1_500, 1_500, 4_000, 9_000))
        steps: list[tuple[int, Fault]] = [
            *((0, ("connect", {"client": each})) for each in clients),
            *((0, ("pace", {"client": each, "ack_after_ms": -1})) for each in clients),
            (luck.choice((0, 300)), ("publish", {"delays_ms": delays})),
            (luck.randint(400, 1_500), ("wait", {})),
            *((0, ("acknowledge", {"client": each, **told})) for each in clients),
            (luck.choice((0, 200, 1_200, 1_200)), ("unload", {"to": luck.randrange(2)})),
            *((luck.choice((0, 0, 100)), freeze) for freeze in self._frozen(frozen_ms)),
        ]
        for _ in range(luck.choice((1, 1, 2, 3))):
            steps.append((luck.randint(0, max(1, frozen_ms // 3)), self._before_it_is_heard()))
        if luck.random() < 0.5:
            # At about the reopening of the stream.
            again = self._frozen(luck.choice((50, 1_500)))
            steps += [(luck.randint(0, frozen_ms), self._before_it_is_heard())]
            steps += [(luck.choice((0, 1, 5, 20)), freeze) for freeze in again]
            steps += [(luck.choice((0, 1, 5, 50)), self._before_it_is_heard())]
        return [Step(after_ms, do, args, luck.getrandbits(32)) for after_ms, (do, args) in steps]

    def _frozen(self, for_ms: int) -> tuple[Fault, Fault]:
        """Both machines: either may have the topic."""
        return (
            ("freeze_daemon", {"daemon": 0, "for_ms": for_ms}),
            ("freeze_daemon", {"daemon": 1, "for_ms": for_ms}),
        )

    def _before_it_is_heard(self) -> Fault:
        luck = self._unheard
        subscription = luck.randrange(self.config.subscriptions)
        client = luck.randrange(6)
        skip: Fault = ("skip", {"subscription": subscription, "count": luck.choice((1, 1, 2, 5))})
        return luck.choice(
            (
                *(skip, skip, skip, skip),
                ("clear_backlog", {"subscription": subscription}),
                ("seek", {"to": luck.choice((0, 500, 1_000)), "subscription": subscription}),
                ("seek", {"to": luck.randint(0, 1_000), "subscription": subscription}),
                ("drop", {"client": client}),
                ("connect", {"client": client}),
                ("cut", {"broker": luck.randrange(2)}),
                ("unload", {"to": luck.randrange(2)}),
            )
        )

    def _change(self) -> list[Step]:
        """Messages are published and soon cancelled, moved or released, some of them twice; something happens
        before the answer, or soon after; and the request is repeated.
        """
        luck = self._changes
        subscription = luck.randrange(self.config.subscriptions)
        delays = [luck.randint(0, luck.choice((300, 3_000, 8_000))) for _ in range(luck.randint(1, 12))]
        steps: list[tuple[int, Fault]] = [(luck.choice((0, 100)), ("publish", {"delays_ms": delays}))]
        for _ in range(luck.choice((1, 1, 2, 3))):
            which = {
                "subscription": subscription,
                "share": luck.randrange(1_000),
                "count": luck.choice((1, 2, 10, 100)),
            }
            wish: Fault = luck.choice(
                (
                    ("cancel", which),
                    ("reschedule", {"in_ms": luck.randint(0, luck.choice((500, 5_000, 10_000))), **which}),
                    ("reschedule", {"in_ms": luck.randint(2_000, 20_000), **which}),
                    ("release", which),
                )
            )
            steps.append((luck.choice((0, 5, 100, 1_000)), wish))
        if luck.random() < 0.7:
            steps.append((luck.choice((0, 2, 5, 20, 20, 200)), self._amid_a_change()))
        again: Fault = ("ask_again", {"subscription": subscription})
        steps += [(luck.choice((20, 500, 3_000)), again) for _ in range(luck.choice((0, 1, 1)))]
        return [Step(after_ms, do, args, luck.getrandbits(32)) for after_ms, (do, args) in steps]

    def _amid_a_change(self) -> Fault:
        luck = self._changes
        number, down_ms = luck.randrange(2), luck.choice((0, 50, 1_000))
        faults: list[Fault] = [
            ("kill_broker", {"broker": number, "down_ms": down_ms}),
            ("kill_daemon", {"daemon": number, "down_ms": down_ms}),
            ("kill_both", {"broker": number, "down_ms": down_ms}),
            ("kill_both", {"broker": number, "down_ms": down_ms}),
            ("kill_at_write", {"daemon": number, "write": luck.randint(1, 4), "down_ms": down_ms + 300}),
            ("kill_at_send", {"broker": number, "frame": luck.randint(1, 4), "down_ms": down_ms + 300}),
            ("cut", {"broker": number}),
            ("unload", {"to": number}),
            ("freeze_broker", {"broker": number, "for_ms": luck.choice((100, 3_000))}),
            ("fail_override", {"request": luck.randint(1, 3), "done": luck.random() < 0.5}),
        ]
        return luck.choice(faults)

    def _undone_reset(self) -> list[Step]:
        """Messages are acknowledged behind gaps, the cursor is reset, and its owner ends at about the write
        of the reset's own record, before another one. Consumers come soon after the next owner.
        """
        luck = self._undone
        clients = range(self.config.clients)
        delays = [luck.randint(0, 300) for _ in range(luck.randint(10, 30))]
        told = {"skip": luck.choice((0, 2, 3)), "count": luck.choice((3, 100))}
        to = luck.choice((0, 500, luck.randint(0, 1_000)))
        seek = {"to": to, "subscription": luck.randrange(self.config.subscriptions)}
        ends: Fault = luck.choice(
            (
                ("unload", {"to": 0}),
                ("unload", {"to": 1}),
                ("kill_both", {"broker": 0, "down_ms": luck.choice((0, 50))}),
                ("kill_broker", {"broker": luck.randrange(2), "down_ms": luck.choice((0, 50))}),
            )
        )
        io_ms = self.config.cursor_io_us // 1_000
        steps: list[tuple[int, Fault]] = [
            *((0, ("pace", {"client": each, "ack_after_ms": -1})) for each in clients),
            (0, ("publish", {"delays_ms": delays})),
            (luck.randint(400, 1_500), ("wait", {})),
            *((0, ("acknowledge", {"client": each, **told})) for each in clients),
            (luck.choice((0, 1_100)), ("seek", seek)),
            (luck.randint(0, 3 * io_ms), ends),
            *((luck.randint(0, 60), ("connect", {"client": each})) for each in clients),
        ]
        return [Step(after_ms, do, args, luck.getrandbits(32)) for after_ms, (do, args) in steps]

    def _pause(self, *, resumes: bool) -> list[Step]:
        """A subscription is paused or resumed; perhaps something dies soon after the answer."""
        luck = self._pauses
        number = luck.randrange(self.config.subscriptions)
        delays = [luck.randint(0, 1_500) for _ in range(luck.randint(1, 10))]
        dies: Fault = luck.choice(
            (
                ("kill_both", {"broker": 0, "down_ms": luck.choice((0, 50))}),
                ("kill_broker", {"broker": luck.randrange(2), "down_ms": luck.choice((0, 50))}),
                ("unload", {"to": luck.randrange(2)}),
                ("wait", {}),
            )
        )
        steps: list[tuple[int, Fault]] = [
            (luck.choice((0, 100, 1_000)), ("publish", {"delays_ms": delays})),
            (luck.choice((0, 100, 1_000)), ("resume" if resumes else "pause", {"subscription": number})),
            (luck.choice((0, 100, 1_000)), dies),
            (luck.choice((0, 1_000, 3_000)), ("wait", {})),
        ]
        return [Step(after_ms, do, args, luck.getrandbits(32)) for after_ms, (do, args) in steps]

    # ---- the world

    def _one_of(self, *choices: Fault) -> Fault:
        return choices[int(self.luck.random() * len(choices))]

    def _some(self, *values: Any) -> Any:
        return values[int(self.luck.random() * len(values))]

    def _config(self) -> Config:
        some = self._some
        staging = some(240, 480, 1_200, 24_000)
        return Config(
            shared_daemon=some(False, False, True),
            subscriptions=some(1, 1, 1, 2),
            clients=some(1, 2, 3),
            permits=some(1, 3, 10, 50),
            ack_after_ms=some(-1, 20, 500, 3_000),
            first_ledger_id=some(10, 10, 10, (1 << 32) - 3),
            session_timeout_ms=some(300, 1_000, 5_000),
            horizon_ms=some(0, 100, 2_000, 2_000, 10_000),
            credit=some(1, 5, 100, 20_000),
            near_max=some(0, 5, 1_000, 200_000),
            pending_max=some(5, 50, 1_000_000),
            ack_poll_ms=50,
            daemon_wait_ms=some(300, 10_000, 10_000),
            ranges_max=some(1, 3, 10_000),
            cursor_flush_ms=some(1_000, 60_000),
            cursor_io_us=some(200, 2_000, 50_000),
            read_batch=some(3, 20, 100),
            read_io_us=some(100, 1_000, 20_000),
            network_us=some(100, 2_000, 50_000),
            socket_capacity=some(64, 500, 200_000, 200_000),
            socket_latency_us=some(20, 200, 5_000, 100_000),
            piece_bytes=some(0, 0, 7, 100),
            set_cut_bytes=some(1 << 20, 1 << 20, 40),
            slice_width_ms=some(100, 1_000, 1_000, 10_000, 3_600_000),
            slice_width_auto=some(False, True),
            staging_budget_bytes=staging,
            carry_ms=some(0, 100, 10_000),
            persist_age_ms=some(200, 2_000, 300_000),
            journal_budget_bytes=some(500, 5_000, 64 << 20),
            block_entries=some(1, 4, 4, 16),
            chunk_entries=some(1, 4, 16, 32_768),
            merge_runs=some(2, 2, 3, 8),
            runs_max=some(9, 32),
            compaction_entries=some(1, 8, 1 << 22),
            interleaved_entries=some(1, 1, 65_536),
            drop_entries=some(1, 8, 262_144),
            prefetch_ms=some(0, 1_000, 10_000),
            pop_scan_entries=some(1, 8, 64, 262_144),
            write_piece_bytes=some(1, 100, 500, 512 << 10),
            retry_ms=some(10, 300),
            quarantine_bytes=some(0, 50, 1 << 20),
            heartbeat_ms=some(500, 2_000, 20_000),
            commit_interval_us=some(0, 2_000, 50_000),
            commit_entries=some(1, 10, 10_000),
            maintain_interval_ms=some(10, 100, 100, 100, 100, 1_000),
            storage_retry_ms=some(10, 300, 1_000),
            write_buffer_bytes=some(100, 65_536),
            staging_bytes_max=some(2 * staging, 64 << 20),
            loop_lag_us=some(10, 100, 5_000),
            job_delay_us=some(10, 500, 20_000),
            write_us=some(10, 300, 10_000),
            daemon_start_ms=some(1, 100, 1_000),
        )

    def _with_index_log(self, config: Config, *, wanted: bool) -> Config:
        some = self._some
        wanted = (
            wanted
            or bool({"home", "log", "objects", "answers"} & set(self.faults))
            or ("move" in self.faults and self.luck.random() < 0.5)
        )
        if not wanted and self.luck.random() > 0.1:
            return config
        objects = "objects" in self.faults
        luck = random.Random(f"ledgers of blocks {self.seed}")  # noqa: S311 so that older seeds have their steps
        return replace(
            config,
            index_log=True,
            log_objects=objects,
            log_tail_entries=some(5, 50, 512) if objects else 512,
            log_io_us=some(100, 2_000, 50_000),
            log_read_bytes=some(1, 500, 1 << 20),
            log_piece_bytes=some(50, 500, 1 << 20),
            log_interval_ms=some(0, 50, 500),
            log_tail_bytes=some(100, 2_000, 2 << 20),
            log_queue_bytes=some(100, 2_000, 16 << 20, 16 << 20),
            log_record_bytes=some(50, 500, 1 << 20),
            log_inline_bytes=luck.choice((0, 0, 300, 4 << 20)),
            log_blocks_ledger_bytes=luck.choice((0, 500, 64 << 20)),
        )

    def _with_more(self, config: Config) -> Config:
        """Later additions to the drawing: by luck of their own, so that a seed stays the same history."""
        luck = random.Random(f"more of {self.seed}")  # noqa: S311 a simulation
        often_ms = self._persists.choice((200, 2_000))
        least = random.Random(f"least of {self.seed}")  # noqa: S311 a simulation
        if least.random() < _LEAST_SHARE:
            changed: dict[str, Any] = {least.choice(_LEAST): 0}
            config = replace(config, **changed)
        return replace(
            config,
            credit_max=luck.choice((1, 7, 1_000_000, 1_000_000)),
            early_tracker_us=luck.choice((-1, 100, 10_000)),
            subscriptions=luck.choice((*[config.subscriptions] * 4, 3)),
            small_limits=luck.choice((False, True)),
            journal_records=luck.choice((0, 5, 32_768)),
            logs_at_once=luck.choice((1, 32, 32)),
            long_logs_at_once=luck.choice((1, 4, 4)),
            long_log_bytes=luck.choice((0, 500, 1 << 20)),
            log_beginnings=luck.choice((1, 4)),
            claims_max=luck.choice((2, 5, 64, 64)),
            log_tail_snapshots=luck.choice((0, 2)),
            reset_clears=luck.choice((False, True)),
            rules_ms=luck.choice((0, 0, 0, 20, 1_000, 8_000)),
            persist_age_ms=often_ms if self.fails_persists else config.persist_age_ms,
        )

    # ---- the steps

    def _step(self) -> Step:
        # Faults come in clusters: what one has half undone is where the next one hurts.
        share = 0.5 if self.after_a_fault else self.fault_share
        pause_ms = self._pause_ms()
        is_fault = bool(self.faults) and self.luck.random() < share
        do, args = self._fault() if is_fault else self._everyday()
        self.after_a_fault = is_fault
        return Step(pause_ms, do, args, self.luck.getrandbits(32))

    def _pause_ms(self) -> int:
        kind = self.luck.random()
        if self.after_a_fault and kind < 0.8:
            return self.luck.randint(0, self._some(1, 10, 100))
        if kind < 0.35:
            return 0
        if kind < 0.7:
            return self.luck.randint(1, 60)
        return self.luck.randint(1, 500 if kind < 0.95 else 5_000)

    def _everyday(self) -> Fault:
        kind = self.luck.random()
        client = self.luck.randrange(6)
        if kind < 0.5:
            return "publish", {"delays_ms": self._delays()}
        if kind < 0.55:
            return "roll_over", {"skipped_ids": self.luck.randrange(4)}
        if kind < 0.65:
            return "wait", {}
        if kind < 0.9:
            many = self._some(1, 3, 100)
            return "acknowledge", {"client": client, "skip": self._some(0, 0, 1, 2, 5), "count": many}
        return "negative_acknowledge", {"client": client, "skip": self._some(0, 1), "count": self._some(1, 3)}

    def _delays(self) -> list[int]:
        luck = self.luck
        count = luck.randint(1, self._some(2, 6, 30))
        kind = luck.random()
        if kind < 0.2:  # a burst at one instant
            return [luck.randint(0, 8_000)] * count
        if kind < 0.3:  # a fixed delay level
            return [self._some(1_000, 5_000)] * count
        longest_ms = self._some(300, 300, 3_000, 3_000, 3_000, 10_000, 10_000, 40_000)
        return [-1 if luck.random() < 0.1 else luck.randint(0, longest_ms) for _ in range(count)]

    def _fault(self) -> Fault:
        fault: Fault = getattr(self, f"_{self._some(*self.faults)}")()
        return fault

    def _subscription_number(self) -> int:
        return self._or_third(self.luck.randrange(2))

    def _or_third(self, number: int) -> int:
        """One of the first two, or the third one: by luck of its own, where there is one."""
        return 2 if self.config.subscriptions > 2 and self._third.random() < 1 / 3 else number

    def _down_ms(self) -> int:
        return self.luck.randint(0, self._some(50, 1_000, 4_000))

    def _crash(self) -> Fault:
        number, down_ms = self.luck.randrange(2), self._down_ms()
        return self._one_of(
            ("kill_broker", {"broker": number, "down_ms": down_ms}),
            ("kill_daemon", {"daemon": number, "down_ms": down_ms}),
            (
                "kill_at_write",
                {"daemon": number, "write": self.luck.randint(1, 12), "down_ms": down_ms + 300},
            ),
            ("kill_at_send", {"broker": number, "frame": self.luck.randint(1, 8), "down_ms": down_ms + 300}),
            ("kill_both", {"broker": number, "down_ms": down_ms}),
            ("stop_daemon", {"daemon": number, "down_ms": down_ms}),
        )

    def _move(self) -> Fault:
        return "unload", {"to": self.luck.randrange(2)}

    def _consumer(self) -> Fault:
        client = self.luck.randrange(6)
        return self._one_of(
            ("disconnect", {"client": client}),
            ("connect", {"client": client}),
            ("connect", {"client": client}),
            ("drop", {"client": client}),
            ("acknowledge_late", {"client": client, "count": self._some(1, 20)}),
            ("permits", {"client": client, "permits": self._some(1, 5, 100)}),
            ("pace", {"client": client, "ack_after_ms": self._some(-1, 50, 1_000)}),
        )

    def _seek(self) -> Fault:
        return "seek", {
            "to": self._some(0, 1_000, self.luck.randint(0, 1_000)),
            "subscription": self._subscription_number(),
        }

    def _clear(self) -> Fault:
        subscription = self._subscription_number()
        count = self._forward.choice((0, 1, 5, 50))
        if count:
            return "skip", {"subscription": subscription, "count": count}
        return "clear_backlog", {"subscription": subscription}

    def _wire(self) -> Fault:
        return "cut", {"broker": self.luck.randrange(2)}

    def _clock(self) -> Fault:
        machine = self.luck.randrange(2)
        by_ms = self._some(-60_000, -1_500, -20, 20, 1_500, 60_000)
        return self._one_of(
            ("clock", {"machine": machine, "by_ms": by_ms}),
            ("drift", {"machine": machine, "ppm": self._some(-50_000, -200, 0, 200, 50_000)}),
        )

    def _disk(self) -> Fault:
        machine, for_ms = self.luck.randrange(2), self.luck.randint(1, self._some(100, 3_000))
        return self._one_of(
            ("refuse_writes", {"machine": machine, "for_ms": for_ms, "written": self._some(False, True)}),
            ("fail_write", {"machine": machine, "write": self.luck.randint(1, 12), "written": True}),
            ("fail_write", {"machine": machine, "write": self.luck.randint(1, 12), "written": False}),
            ("slow_disk", {"machine": machine, "for_ms": for_ms}),
        )

    def _damage(self) -> Fault:
        machine = self.luck.randrange(2)
        return self._one_of(
            (
                "damage",
                {
                    "machine": machine,
                    "kinds": self._some("B", "B", "J", "H", "A", "C", "M", "T", "BJHACMTIS"),
                },
            ),
            ("lose_data", {"machine": machine, "down_ms": self._down_ms()}),
            ("lose_log", {"machine": machine, "batches": self._some(1, 3, 20), "down_ms": self._down_ms()}),
        )

    def _freeze(self) -> Fault:
        number, for_ms = self.luck.randrange(2), self.luck.randint(1, self._some(100, 3_000, 9_000))
        return self._one_of(
            ("freeze_broker", {"broker": number, "for_ms": for_ms}),
            ("freeze_daemon", {"daemon": number, "for_ms": for_ms}),
        )

    def _power(self) -> Fault:
        how = self._some("all_lost", "prefix", "prefix", "scattered")
        return "power_cut", {"machine": self.luck.randrange(2), "how": how, "down_ms": self._down_ms()}

    def _home(self) -> Fault:
        for_ms = self.luck.randint(1, self._some(100, 3_000, 15_000))
        return self._one_of(
            ("unload", {"to": self.luck.randrange(2)}),
            ("kill_broker", {"broker": self.luck.randrange(2), "down_ms": self._down_ms()}),
            ("bookies_away", {"for_ms": for_ms}),
            ("bookies_slow", {"for_ms": for_ms}),
            ("damage_log", {"how": self._some("flipped", "cut", "lost", "end_lost")}),
        )

    def _log(self) -> Fault:
        """Something happens just when a log is opened, read, made, appended to or pointed at."""
        to = self.luck.randrange(2)
        if self.luck.random() < 0.3:
            return "unload", {"to": to}
        op = self._some("OPEN", "READ", "READ", "CREATE", "APPEND", "POINT", "DELETE")
        number, for_ms = self.luck.randrange(2), self.luck.randint(1, self._some(100, 3_000, 9_000))
        do, args = self._one_of(
            ("unload", {"to": to}),
            ("kill_daemon", {"daemon": number, "down_ms": self._down_ms()}),
            ("stop_daemon", {"daemon": number, "down_ms": self._down_ms()}),
            ("kill_broker", {"broker": number, "down_ms": self._down_ms()}),
            ("freeze_broker", {"broker": number, "for_ms": for_ms}),
            ("cut", {"broker": number}),
            (
                "kill_at_write",
                {"daemon": number, "write": self.luck.randint(1, 12), "down_ms": self._down_ms() + 300},
            ),
            (
                "fail_write",
                {"machine": number, "write": self.luck.randint(1, 6), "written": self._some(False, True)},
            ),
            ("refuse_writes", {"machine": number, "for_ms": for_ms, "written": False}),
            ("power_cut", {"machine": number, "how": "prefix", "down_ms": self._down_ms()}),
            ("bookies_away", {"for_ms": for_ms}),
            ("seek", {"to": self._some(0, 500, 1_000), "subscription": self._or_third(number)}),
        )
        return "at_log_request", {
            "op": op,
            "request": self.luck.randint(1, self._some(1, 3, 10)),
            "then": {"do": do, **args},
        }

    def _answers(self) -> Fault:
        """The home of an index log carries out a request, and the answer is lost, late or doubled; the daemon
        that waits for it dies, or its topic moves, or neither."""
        op = self._some("CREATE", "OPEN", "APPEND", "READ", "DELETE", "POINT", "POINT", "ANY")
        fate = self._some("lost", "failed", "failed", "late", "doubled")
        kind = self.luck.random()
        if kind < 0.2:
            return "unload", {"to": self.luck.randrange(2)}
        if kind < 0.4:
            return self._crash()
        return "spoil_answers", {
            "op": op,
            "fate": fate,
            "share": self._some(0.2, 1.0),
            "for_ms": self.luck.randint(1, self._some(100, 3_000, 15_000)),
        }

    def _objects(self) -> Fault:
        """The fate of logs in a store of objects."""
        return self._subscription() if self.luck.random() < 0.1 else self._home()

    def _reads(self) -> Fault:
        for_ms = self.luck.randint(1, self._some(100, 3_000))
        return "refuse_reads", {"machine": self.luck.randrange(2), "for_ms": for_ms}

    def _subscription(self) -> Fault:
        return "unsubscribe", {
            "subscription": self._subscription_number(),
            "to": self._some(0, 1_000, self.luck.randint(0, 1_000)),
            "gone_ms": self._some(0, 0, 3_000),
        }

    def _rebuild(self) -> Fault:
        return "rebuild", {
            "subscription": self._subscription_number(),
            "share": self._some(10, 50, 100, 100),
            "let_go": self._some(0, 0, 10, 50),
            "block_entries": self._some(1, 5, 1_000),
            "ends_ms": self._some(-1, -1, -1, 5, 50),
        }

    def _settings(self) -> Fault:
        """Somebody changes what is set, and what has it is started again."""
        number, down_ms = self.luck.randrange(2), self._down_ms()
        if self.luck.random() < 0.5:
            home = self._some("", "", "bookkeeper", "objects")
            return "set_log_home", {"broker": number, "home": home, "down_ms": down_ms}
        other = _Generator(self.luck.getrandbits(32), (), {}).config
        settings = {name: getattr(other, name) for name in self.luck.sample(RESET, 6)}
        settings["staging_bytes_max"] = other.staging_bytes_max  # towards which the budget is half at most
        settings["staging_budget_bytes"] = other.staging_budget_bytes
        return "set_daemon", {"daemon": number, "settings": settings, "down_ms": down_ms}

    def _backup(self) -> Fault:
        gently, down_ms = self._some(False, True), self._down_ms()
        daemons = self._some("", "", "stop", "kill")
        return self._one_of(
            ("back_up", {"gently": gently, "down_ms": down_ms}),
            ("put_back", {"gently": gently, "daemons": daemons, "down_ms": down_ms}),
            ("put_back", {"gently": gently, "daemons": daemons, "down_ms": down_ms}),
        )

    def _width(self) -> Fault:
        return "width", {"daemon": self.luck.randrange(2), "width_ms": self._some(0, 1_000, 5_000, 60_000)}
