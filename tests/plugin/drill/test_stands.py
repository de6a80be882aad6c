"""Where drills are run: which stand a drill needs, and what a stand cannot do is said."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.support.waiting import wait_until
from tidegate.plugin.drill.catalogue import DRILLS, named
from tidegate.plugin.drill.course import faster_pace, given_up, slower_pace
from tidegate.plugin.drill.fault import FaultError, Need, State
from tidegate.plugin.drill.faults.stored import has_spilled
from tidegate.plugin.drill.plan import FAR_MS
from tidegate.plugin.drill.stands.clock import SetClock, build_clock
from tidegate.plugin.drill.stands.hook import HookPart
from tidegate.plugin.drill.stands.making import Kind, can_run, kind_for
from tidegate.plugin.drill.stands.own import Own, OwnStand
from tidegate.plugin.drill.stands.small_disk import SmallDisk, SmallDiskError
from tidegate.plugin.drill.stands.trackers import broker_conf
from tidegate.plugin.errors import ConfigError
from tidegate.plugin.stop import InterruptedRunError, Stop

TOPIC = "persistent://public/default/test"


def own(
    tmp_path: Path, *, admin_url: str | None = "http://127.0.0.1:1", on_kill: str | None = None
) -> OwnStand:
    return OwnStand(Own("pulsar://127.0.0.1:1", admin_url, TOPIC, on_kill), tmp_path, pause=time.sleep)


def test_a_drill_gets_the_smallest_stand_that_will_do() -> None:
    assert kind_for(named("broker-killed").needs) is Kind.STANDALONE
    assert kind_for(named("bundle-moved").needs) is Kind.CLUSTER
    assert kind_for(named("bookie-slow").needs) is Kind.CLUSTER
    assert kind_for(named("broker-clock-stepped").needs) is Kind.CLOCKS
    assert kind_for(named("disk-full").needs) is Kind.SMALL_DISK


def test_drills_of_one_stand_stand_together() -> None:
    """Otherwise a run of all would start stands again and again."""
    kinds = [kind_for(drill.needs) for drill in DRILLS]
    changes = sum(before is not after for before, after in itertools.pairwise(kinds))
    assert changes == len(set(kinds)) - 1


@pytest.mark.parametrize(
    ("admin_url", "on_kill", "offered"),
    [
        (None, None, set()),
        (None, "hook", set()),
        ("http://127.0.0.1:1", None, {Need.ADMIN, Need.MOVE}),
        ("http://127.0.0.1:1", "hook", {Need.ADMIN, Need.MOVE, Need.BROKER, Need.DAEMON}),
    ],
)
def test_on_somebodys_own_cluster_nothing_is_killed_but_by_the_hook(
    tmp_path: Path, admin_url: str | None, on_kill: str | None, offered: set[Need]
) -> None:
    stand = own(tmp_path, admin_url=admin_url, on_kill=on_kill)
    assert stand.offers == offered
    assert set(stand.lacking) == set(Need) - offered
    for fault in (stand.data_dir, lambda: stand.set_clock("broker", 1.0), lambda: stand.fill_disk(full=True)):
        with pytest.raises(FaultError):
            fault()


@pytest.mark.parametrize(
    ("hook", "told"),
    [
        ("false", "ended with 1"),
        ("/nothing/there", "could not be run"),
        ("sh -c 'echo not root >&2; exit 7'", "not root"),
    ],
)
def test_a_hook_that_fails_is_told(tmp_path: Path, hook: str, told: str) -> None:
    part = own(tmp_path, on_kill=hook).part("broker")
    with pytest.raises(FaultError, match=told):
        part.kill()
    assert part.state() is State.RUNNING


def test_a_hook_is_told_what_to_do_and_believed_when_it_is_seen(tmp_path: Path) -> None:
    """Nobody answers on that admin URL: the broker is away, and cannot be seen to come back."""
    said = tmp_path / "said"
    hook = f"sh -c 'echo \"$@\" >> {said}' hook"
    part = own(tmp_path, on_kill=hook).part("broker")
    assert isinstance(part, HookPart)
    part.kill()
    assert part.state() is State.GONE
    assert said.read_text() == "kill broker\n"


class _Brokers(BaseHTTPRequestHandler):
    """Lists ``brokers``, or refuses to; whatever else is asked, the first of them has the topic."""

    brokers: tuple[str, ...] | None = ()

    def do_GET(self) -> None:
        told: Any = {"brokerUrl": "pulsar://a:6650"}
        status = 200
        if self.path == "/admin/v2/brokers":
            told, status = self.brokers, 403 if self.brokers is None else 200
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps(told).encode())


@contextlib.contextmanager
def listing(
    tmp_path: Path, brokers: tuple[str, ...] | None, *, on_kill: str | None = "hook"
) -> Iterator[OwnStand]:
    """A cluster of one's own whose admin interface lists these brokers; None: it may not be asked."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Brokers) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        _Brokers.brokers = brokers
        stand = own(tmp_path, admin_url=f"http://127.0.0.1:{server.server_port}", on_kill=on_kill)
        try:
            yield stand
        finally:
            server.shutdown()
            stand.end()


@pytest.mark.parametrize(
    ("brokers", "why"),
    [
        (("a:8080", "b:8080"), None),
        (("a:8080",), "its admin URL lists 1 active broker"),
        (None, "its admin URL does not list its brokers to us: give the token of somebody who may"),
    ],
)
def test_two_brokers_are_there_if_the_admin_interface_lists_them(
    tmp_path: Path, brokers: tuple[str, ...] | None, why: str | None
) -> None:
    with listing(tmp_path, brokers) as stand:
        assert (Need.TWO_BROKERS in stand.offers) == (why is None)
        assert stand.lacking.get(Need.TWO_BROKERS) == why


def test_a_broker_is_back_when_as_many_are_listed_as_before(tmp_path: Path) -> None:
    """Another has the topic already: what was paused is seen to go on by that."""
    with listing(tmp_path, ("a:8080", "b:8080")) as stand:
        assert Need.TWO_BROKERS in stand.offers
        _Brokers.brokers = ("a:8080",)
        assert not stand.there("broker")
        _Brokers.brokers = ("a:8080", "b:8080")
        wait_until(lambda: stand.there("broker"), "both are listed again")


def test_each_client_is_given_another_of_several_places(tmp_path: Path) -> None:
    """One that knows all of them asks each in turn, also a paused broker, which takes connections."""
    stand = OwnStand(Own("pulsar+ssl://a:1,b:2", None, TOPIC, None), tmp_path, pause=time.sleep)
    urls = ["pulsar+ssl://a:1", "pulsar+ssl://b:2"]
    assert [stand.client_url(TOPIC) for _ in range(3)] == [*urls, urls[0]]


_WITHOUT_ADMIN = {"consumers-churning", "slow-consumer", "burst"}
_WITH_ADMIN = _WITHOUT_ADMIN | {"bundle-moved", "seek-while-moving"}
_WITH_HOOK = _WITH_ADMIN | {"broker-killed", "daemon-killed", "both-killed", "daemon-paused", "ack-holes"}


@pytest.mark.parametrize(
    ("admin", "on_kill", "brokers", "names"),
    [
        (False, "hook", ("a:8080", "b:8080"), _WITHOUT_ADMIN),
        (True, None, ("a:8080", "b:8080"), _WITH_ADMIN),
        (True, "hook", ("a:8080",), _WITH_HOOK),
        (True, "hook", ("a:8080", "b:8080"), _WITH_HOOK | {"broker-paused"}),
    ],
)
def test_what_can_be_drilled_on_a_cluster_of_ones_own(
    tmp_path: Path, admin: bool, on_kill: str | None, brokers: tuple[str, ...], names: set[str]
) -> None:
    """As the table in docs/drills.md says."""
    with listing(tmp_path, brokers, on_kill=on_kill) as stand:
        there = stand if admin else own(tmp_path, admin_url=None, on_kill=on_kill)
        assert {drill.name for drill in DRILLS if there.offers.issuperset(drill.needs)} == names


def test_why_no_machine_can_be_lost_on_a_cluster_of_ones_own_is_said(tmp_path: Path) -> None:
    with listing(tmp_path, ("a:8080", "b:8080")) as stand:
        for name in ("machine-lost", "rolling-restart"):
            missing = [need for need in named(name).needs if need not in stand.offers]
            assert [stand.lacking[need] for need in missing] == [
                "the hook is asked about the topic's broker and its daemon, never about a whole machine"
            ]


class _Broker(BaseHTTPRequestHandler):
    """Says what a broker in another time zone says of a topic with one consumer."""

    since = ""

    def do_GET(self) -> None:
        consumer = {"address": "/127.0.0.1:50000", "connectedSince": self.since}
        told: dict[str, Any] = {"brokerUrl": "pulsar://127.0.0.1:6650"}
        if self.path.endswith("/stats"):
            told = {"subscriptions": {"drill-1": {"consumers": [consumer]}}}
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(told).encode())


def test_a_broker_in_another_time_zone_is_away_when_its_consumers_have_connected_anew(tmp_path: Path) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Broker) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        stand = own(tmp_path, admin_url=f"http://127.0.0.1:{server.server_port}")
        try:
            for zone in ("+14:00", "-11:00", "Z"):
                _Broker.since = f"2026-11-22T20:00:00.000{zone}"
                before = stand.trace("broker")
                # A broker that does not answer in time is away, too, and this machine may be busy.
                wait_until(lambda: not stand.away("broker", before), "the consumer is still the same one")  # noqa: B023
                _Broker.since = f"2026-11-22T20:00:00.400{zone}"
                assert stand.away("broker", before)
        finally:
            server.shutdown()
            stand.end()


@pytest.mark.parametrize("said", ["<html>", "[]", '"no"', '{"version": 3}'])
def test_what_answers_and_is_no_broker_is_told(tmp_path: Path, said: str) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        _Page.said = said
        place = f"127.0.0.1:{server.server_port}"
        stand = OwnStand(Own(f"pulsar://{place}", f"http://{place}", TOPIC, None), tmp_path, pause=time.sleep)
        try:
            with pytest.raises(ConfigError, match=f"what answers on http://{place} is no Pulsar"):
                stand.start()
        finally:
            server.shutdown()
            stand.end()


class _Page(BaseHTTPRequestHandler):
    """Has one answer to everything."""

    said = ""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.said.encode())

    def do_PUT(self) -> None:
        self.do_GET()


@pytest.mark.parametrize(
    ("said", "seen"),
    [
        ({"brokerUrl": "pulsar://a:1"}, "unloaded, and not moved: its bundle stays at pulsar://a:1, which"),
        ({"brokerUrl": None, "brokerUrlTls": "pulsar+ssl://b:2"}, "its bundle stays at pulsar+ssl://b:2"),
        ({}, "unloaded from None, now at None"),
    ],
)
def test_a_topic_that_was_unloaded_and_not_moved_is_said_so(
    tmp_path: Path, said: dict[str, str | None], seen: str
) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        _Page.said = json.dumps(said)
        stand = own(tmp_path, admin_url=f"http://127.0.0.1:{server.server_port}")
        try:
            assert seen in stand.move(TOPIC)
        finally:
            server.shutdown()
            stand.end()


class _Metrics(BaseHTTPRequestHandler):
    """A broker that has the topic, or another one."""

    knows = f'pulsar_delayed_tidegate_reconnects{{topic="{TOPIC}",subscription="drill-1"}} 3\n'

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.knows.encode() if self.path == "/metrics/" else b"{}")


@pytest.mark.parametrize("owner", ["another", "gone", "not told"])
def test_what_the_daemon_does_is_asked_of_the_broker_that_has_the_topic(tmp_path: Path, owner: str) -> None:
    """The admin URL may be another broker's, or a load balancer's."""
    with (
        ThreadingHTTPServer(("127.0.0.1", 0), _Page) as asked,
        ThreadingHTTPServer(("127.0.0.1", 0), _Metrics) as having,
    ):
        for server in (asked, having):
            threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{having.server_port if owner == 'another' else 1}"
        _Page.said = json.dumps(
            {"brokerUrl": "pulsar://a:1"} | ({} if owner == "not told" else {"httpUrl": url})
        )
        stand = own(tmp_path, admin_url=f"http://127.0.0.1:{asked.server_port}")
        try:
            assert stand.trace("daemon") == (3.0 if owner == "another" else None)
        finally:
            asked.shutdown()
            having.shutdown()
            stand.end()


class _Seen:
    """A cluster of which the broker is seen to go and to come."""

    def trace(self, name: str) -> object:
        return None

    def away(self, name: str, before: object) -> bool:
        return True

    def there(self, name: str) -> bool:
        return True


def test_ctrl_c_amid_a_hook_leaves_it_to_its_end_and_brings_back_what_it_took(tmp_path: Path) -> None:
    said, stop = tmp_path / "said", Stop("the drills")
    hook = f"sh -c 'read line < {tmp_path / 'go'}; echo \"$@\" >> {said}' hook"
    os.mkfifo(tmp_path / "go")

    def pause(seconds: float) -> None:
        """Somebody asks for the end while the hook still waits for its line."""
        if not said.exists():
            (tmp_path / "go").write_text("go\n")
        stop.request()
        stop.pause(seconds)

    part = HookPart("broker", _Seen(), hook, tmp_path / "hook.log", pause)
    with pytest.raises(InterruptedRunError):
        part.kill()
    assert said.read_text() == "kill broker\n"
    assert part.state() is State.GONE
    said.unlink()
    with pytest.raises(InterruptedRunError):
        part.start()
    assert (said.read_text(), part.state()) == ("start broker\n", State.RUNNING)


def test_patience_begins_when_deliveries_are_possible_again() -> None:
    """A broker's start took 82 s on a busy machine, and what waited for it was taken for lost."""
    second = 1_000_000
    assert not given_up(90 * second, 3 * second, 10 * second, 85 * second)
    assert given_up(146 * second, 3 * second, 10 * second, 85 * second)


def test_only_slices_of_the_round_count_as_spilled() -> None:
    now_ms = 1_000_000

    def status(topic: str, soon: int, later: int, omitted: int = 0) -> dict[str, Any]:
        starts_ms = [now_ms + 5_000 * one for one in range(soon)]
        starts_ms += [now_ms + FAR_MS + 5_000 * one for one in range(later)]
        slices = [{"start_ms": start_ms, "state": "stored"} for start_ms in starts_ms]
        found = {"topic": topic, "slices": slices, "slices_omitted": omitted}
        return {"daemon": {"now_ms": now_ms}, "subscriptions": [found]}

    assert has_spilled(status(TOPIC, 2, 12), TOPIC)
    assert has_spilled(status(TOPIC, 2, 4, omitted=8), TOPIC)
    assert not has_spilled(status(TOPIC, 1, 12), TOPIC)
    assert not has_spilled(status(TOPIC, 14, 0), TOPIC)
    assert not has_spilled(status(f"{TOPIC}-of-before", 2, 12), TOPIC)
    over = status(TOPIC, 2, 12)
    over["subscriptions"][0]["slices"][0]["state"] = "finished"
    assert not has_spilled(over, TOPIC)
    assert not has_spilled(None, TOPIC)


@pytest.mark.parametrize(
    ("share", "sent", "sends_per_s"),
    [
        (0.5, 50_000, None),
        (0.5, 41_000, None),
        (0.5, 30_000, 3_600),
        (1.0, 100_000, None),
        (1.0, 99_999, 5_999),
    ],
)
def test_a_burst_that_will_not_be_stored_in_time_is_given_a_slower_pace(
    share: float, sent: int, sends_per_s: int | None
) -> None:
    """Half-way it may be a little behind."""
    elapsed_ms = 10_000 * share
    assert slower_pace(sent, 100_000, elapsed_ms, 10_000, last=share == 1.0) == sends_per_s


def test_after_a_burst_that_was_stored_in_time_the_next_one_is_faster_up_to_the_most() -> None:
    paces = [6_000]
    while paces[-1] < 16_000:
        paces.append(faster_pace(paces[-1], 16_000))
    assert paces == [6_000, 7_500, 9_375, 11_718, 14_647, 16_000]


def test_a_small_disk_is_filled_and_freed(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        with pytest.raises(SmallDiskError):
            SmallDisk(tmp_path / "disk", 1 << 20)
        return
    disk = SmallDisk(tmp_path / "disk", 1 << 20)
    try:
        assert disk.fill() == 1 << 20
        with pytest.raises(OSError, match="No space left"):
            (disk.inside / "more").write_bytes(b"x" * 5_000)
        disk.free()
        (disk.inside / "more").write_bytes(b"x" * 5_000)
        assert not list((tmp_path / "disk").iterdir()), "others do not see it"
    finally:
        disk.close()


def test_the_clock_of_one_process_is_set_and_nobody_elses(tmp_path: Path) -> None:
    library = build_clock(tmp_path)
    clock = SetClock(library, tmp_path / "ahead")
    program = "import sys, time; [print(time.time(), time.monotonic(), flush=True) for _ in sys.stdin]"
    with subprocess.Popen(
        [sys.executable, "-c", program],
        env=os.environ | clock.environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        for ahead_s in (0.0, 3_600.0, -7.5, 0.0):
            clock.set(ahead_s)
            before_s, steady_s = time.time(), time.monotonic()
            child.stdin.write("\n")
            child.stdin.flush()
            told_s, monotonic_s = map(float, child.stdout.readline().split())
            assert before_s <= told_s - ahead_s <= time.time()
            assert steady_s <= monotonic_s <= time.monotonic()
    clock.close()


def test_a_compared_tracker_is_left_out_of_what_it_has_not() -> None:
    def left_out(tracker: str) -> set[str]:
        return {drill.name for drill in DRILLS if not can_run(drill.needs, tracker)}

    assert left_out("tidegate") == set()
    assert left_out("bucket") == left_out("in-memory") == {
        "daemon-killed", "both-killed", "daemon-paused", "data-directory-lost", "block-corrupted", "upgrade",
        "disk-full", "daemon-clock-ahead", "daemon-clock-behind",
    }  # fmt: skip
    assert {"broker-killed", "burst"} <= left_out("no-index-log")
    assert left_out("no-index-log").isdisjoint({"machine-lost", "bundle-moved", "seek-while-moving"})


def test_the_brokers_of_a_cluster_keep_index_logs_as_one_attaches_them(tmp_path: Path) -> None:
    socket_path = tmp_path / "s"
    assert broker_conf("tidegate", socket_path, several=True)["tidegateIndexLog"] == "bookkeeper"
    for conf in (
        broker_conf("tidegate", socket_path),
        broker_conf("no-index-log", socket_path, several=True),
        broker_conf("bucket", socket_path, several=True),
    ):
        assert "tidegateIndexLog" not in conf
