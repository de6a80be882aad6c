"""A user's own cluster: possible drills, effects seen from outside, and named limits."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.support.own_stands import TOPIC, own
from tests.support.waiting import wait_until
from tidegate.plugin.drill.catalogue import DRILLS, named
from tidegate.plugin.drill.fault import FaultError, Need
from tidegate.plugin.drill.stands.own import Own, OwnStand
from tidegate.plugin.errors import ConfigError


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
    for fault in (
        stand.data_dir,
        lambda: stand.set_clock("broker", 1.0),
        lambda: stand.fill_disk(full=True),
        lambda: stand.choose_pulsar("broker", newer=True),
    ):
        with pytest.raises(FaultError):
            fault()


class _Brokers(BaseHTTPRequestHandler):
    """Lists ``brokers``, or refuses to; to all other questions the first of them has the topic."""

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
    """A user's own cluster with an admin interface that lists these brokers; None: it may not be asked."""
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
    """Another has the topic already, which shows that the paused one goes on."""
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


_WITHOUT_ADMIN = {"consumers-churning", "slow-consumer", "consumers-behind", "burst"}


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
    """As in the table of docs/drills.md."""
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
    """A broker in another time zone, with the stats of a topic with one consumer."""

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
                # A broker without an answer in time is away, too, and this machine may be busy.
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
    """A broker with the topic, or another one."""

    knows = (
        f'pulsar_delayed_tidegate_reconnects{{topic="{TOPIC}",subscription="drill-1"}} 3\n'
        f'pulsar_delayed_tidegate_reconnects{{topic="{TOPIC}-2",subscription="drill-1"}} 9\n'
    )

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
