"""A real cluster of two brokers with a daemon each, for a lane; topics move on a test's command."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pulsar

from tests.support.admin import Admin
from tests.support.cluster import OPERATION_TIMEOUT_S, PULSAR_HOME, SHIM_JAR, TrackerKind
from tests.support.servlets import servlet_conf
from tests.support.waiting import wait_until
from tidegate.pipeline.rebuild.orphans import INDEX_LOG, BookieLedgers
from tidegate.plugin.local.cluster import LocalCluster, Node
from tidegate.plugin.wire.client import ask_socket

MOVING = "public/moving"
# One bundle, so that the whole namespace moves together.
BUNDLE = "0x00000000_0xffffffff"
_MOVES_MAX = 6
# So few that a short test has more acknowledgements out of order than the cursor's record has room for.
_RANGES_MAX = 500
LEDGER_ENTRIES = 2_000
_CONF = {
    "managedLedgerMaxUnackedRangesToPersist": str(_RANGES_MAX),
    "managedLedgerMaxUnackedRangesToPersistInMetadataStore": "100",
    "managedLedgerMaxEntriesPerLedger": str(LEDGER_ENTRIES),
    "topicLevelPoliciesEnabled": "false",
}


class TwoBrokers:
    """A cluster of two brokers, for :class:`tests.support.lane.Lane`."""

    kind = TrackerKind.TIDEGATE

    def __init__(
        self,
        work_dir: Path,
        socket_dir: Path,
        *,
        index_log: str,
        daemon_settings: Mapping[str, str] | None = None,
        daemon_program: Path | None = None,
        broker_conf: Mapping[str, str] | None = None,
        bookie_conf: Mapping[str, str] | None = None,
        metadata_url: str | None = None,
    ) -> None:
        own = {"tidegateIndexLog": index_log, **servlet_conf(work_dir / "nar")}
        conf = {**_CONF, **own, **(broker_conf or {})}
        self.cluster = LocalCluster(
            PULSAR_HOME,
            work_dir,
            socket_dir,
            jar=SHIM_JAR,
            conf=conf,
            bookie_conf=bookie_conf,
            daemon_settings=daemon_settings,
            metadata_url=metadata_url,
        )
        if daemon_program is not None:
            for node in self.cluster.nodes:
                node.daemon.program = ("-P", str(daemon_program))
        self.a, self.b = self.cluster.nodes
        self._admins = {node.name: Admin(node.broker.admin_url) for node in self.cluster.nodes}
        self.admin = self.admin_of(self.a)

    @property
    def running(self) -> bool:
        """True if a broker is there."""
        return all(node.broker.running for node in self.cluster.nodes)

    @property
    def service_url(self) -> str:
        """The URL for clients, which find the topic's owner through it."""
        return self.cluster.service_url

    @property
    def work_dir(self) -> Path:
        return self.cluster.work_dir

    @property
    def client_log_path(self) -> Path:
        return self.work_dir / "client.log"

    def start(self) -> None:
        """Start everything, and make the namespace that moves."""
        self.cluster.start()
        self.admin.call("PUT", f"/namespaces/{MOVING}", {"bundles": {"numBundles": 1, "boundaries": None}})
        self.admin.set_retention(MOVING, minutes=-1, size_mib=-1)

    def admin_of(self, node: Node) -> Admin:
        """Ask this broker, which redirects to the topic's owner."""
        return self._admins[node.name]

    def end(self) -> None:
        """Kill everything; the logs stay."""
        for admin in self._admins.values():
            admin.close()
        self.cluster.end()

    def owner(self, topic: str, asked: Node) -> str:
        """The service URL of the topic's owner according to ``asked``; empty while unknown."""
        url = f"{asked.broker.admin_url}/lookup/v2/topic/persistent/{topic}"
        with contextlib.suppress(httpx.HTTPError):
            answer = httpx.get(url, timeout=5.0, trust_env=False, follow_redirects=True)
            if answer.is_success:
                return str(answer.json()["brokerUrl"])
        return ""

    def move(self, topic: str, to: Node) -> None:
        """Have ``to`` own the topic, owned or not; returns once it does.

        Asked again if need be: Pulsar gives it back to its former owner if a client's lookup comes there
        before the news of its destination.
        """

        def there() -> bool:
            return self.owner(topic, to) == to.broker.service_url

        for _ in range(_MOVES_MAX):
            if there():
                return
            self.admin_of(to).move(MOVING, BUNDLE, to.broker.broker_id)
            with contextlib.suppress(AssertionError):
                wait_until(there, f"broker {to.name} has {topic}", timeout_s=10.0)
        assert there(), f"broker {to.name} was told {_MOVES_MAX} times to take {topic}"

    def wait_for_news(self, node: Node, topic: str, owner: Node) -> None:
        """Give ``node``, which was paused, time to learn that it has lost the topic.

        Mostly a second. Pulsar 4.0.8 may also keep it for minutes, which must do no harm.
        """
        with contextlib.suppress(AssertionError):
            wait_until(
                lambda: self.owner(topic, node) == owner.broker.service_url,
                f"{node.name} has let go",
                timeout_s=10.0,
            )

    def acknowledged(self, node: Node, topic: str) -> int:
        """Positions that the daemon of ``node`` knows acknowledged above the mark-delete position."""
        return self._status(node, topic, "acknowledged")

    def held(self, node: Node, topic: str) -> int:
        """Positions held by the daemon of ``node``."""
        return self._status(node, topic, "held")

    def blocks(self, node: Node, topic: str) -> int:
        """Blocks of the index at ``node``."""
        return self._status(node, topic, "blocks")

    def log(self, node: Node, topic: str) -> dict[str, Any]:
        """The state at ``node`` of the index log of the topic's subscription; empty without one."""
        logs = [one["index_log"] for one in self._subscriptions(node, topic)]
        return next((log for log in logs if log is not None), {})

    def wait_logged(self, node: Node, topic: str, held: int, *, or_more: bool = False) -> None:
        """Wait until the daemon of ``node`` holds so many, and the index log has all its knowledge.

        or_more: the broker may have left some messages due soon, or in a consumer's hands.
        """

        def logged() -> bool:
            found = self.held(node, topic)
            if found < held or (found > held and not or_more):
                return False
            log = self.log(node, topic)
            return bool(log) and log["ledger_id"] is not None and not log["lag_seconds"]

        wait_until(logged, f"the index log of {topic} is up to date")

    def ledgers(self) -> set[int]:
        answer = httpx.get(f"{self.cluster.bookie_url}/api/v1/ledger/list", timeout=5.0, trust_env=False)
        return {int(ledger_id) for ledger_id in answer.raise_for_status().json()}

    def log_ledgers(self, topic: str) -> set[int]:
        """Every ledger of the topic's index logs, of blocks or not."""
        found = BookieLedgers(self.cluster.bookie_url).list()
        return {
            one.ledger_id
            for one in found
            if one.topic == f"persistent://{topic}" and one.component == INDEX_LOG
        }

    def delete_ledger(self, ledger_id: int) -> None:
        """Delete a ledger, whoever needs it."""
        url = f"{self.cluster.bookie_url}/api/v1/ledger/delete"
        params = {"ledger_id": ledger_id}
        httpx.delete(url, params=params, timeout=5.0, trust_env=False).raise_for_status()

    def counted(self, node: Node, name: str) -> float:
        """A counter of the daemon of ``node``."""
        text = httpx.get(f"{node.daemon.url}/metrics", timeout=5.0, trust_env=False).text
        return next(float(line.split()[1]) for line in text.splitlines() if line.startswith(f"{name} "))

    def _status(self, node: Node, topic: str, field: str) -> int:
        return sum(one[field] for one in self._subscriptions(node, topic))

    def _subscriptions(self, node: Node, topic: str) -> list[dict[str, Any]]:
        status = ask_socket(node.daemon.socket_path, {"what": "status"})
        full_name = f"persistent://{topic}"
        return [one for one in status["subscriptions"] if one["topic"] == full_name]

    def epoch(self, topic: str) -> int:
        """The subscription's number of trackers at the topic's loading."""
        return int(_property(self.admin, topic, "owner").split(":")[1])

    def pointer(self, asked: Node, topic: str) -> str:
        """The cursor's pointer to the index log at the topic's loading."""
        return _property(self.admin_of(asked), topic, "log")

    def said(self, node: Node, topic: str, event: str) -> list[dict[str, Any]]:
        """Log lines ``event`` of the daemon of ``node`` about a topic."""
        whole, _, _ = node.daemon.log_path.read_text(encoding="utf-8").rpartition("\n")
        lines = map(json.loads, whole.splitlines())
        return [one for one in lines if one["event"] == event and one["topic"] == f"persistent://{topic}"]

    @contextlib.contextmanager
    def client(self) -> Iterator[pulsar.Client]:
        """A client that finds the topic's owner."""
        with self.client_of(self.service_url) as client:
            yield client

    @contextlib.contextmanager
    def client_of(self, service_url: str) -> Iterator[pulsar.Client]:
        """A client that asks only these brokers."""
        client = pulsar.Client(
            service_url,
            operation_timeout_seconds=OPERATION_TIMEOUT_S,
            logger=pulsar.FileLogger(pulsar.LoggerLevel.Warn, str(self.client_log_path)),
        )
        try:
            yield client
        finally:
            # Closing waits for a present broker, so that acknowledgements still reach it.
            if self.running:
                client.close()
            else:
                client.shutdown()


def _property(admin: Admin, topic: str, name: str) -> str:
    properties = admin.stats(topic)["subscriptions"]["sub"]["subscriptionProperties"]
    return str(properties[f"#pulsar.internal.tidegate.{name}"])
