"""The examination: asks home, machine, daemon and broker, and hands their answers to the checks.

Invariants: it changes nothing; each question is bounded in time, and those about topics in number; a question
without an answer is a finding, and the others are still asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tidegate.plugin.attach.attachment import Attachment
from tidegate.plugin.attach.broker_keys import TRACKER_FACTORY, TRACKER_KEY
from tidegate.plugin.attach.broker_keys import ack_ranges_max as attach_ack_ranges_max
from tidegate.plugin.doctor import clocks, daemon, home, machine, topics
from tidegate.plugin.doctor.broker import BrokerAdmin
from tidegate.plugin.doctor.clocks import Reading
from tidegate.plugin.doctor.finding import Finding, Verdict, capped, worst_first
from tidegate.plugin.doctor.home import HomeFacts
from tidegate.plugin.doctor.look import look_at_data, look_at_home, look_at_socket
from tidegate.plugin.doctor.topics import TopicFacts, Waiting, limits_of
from tidegate.plugin.errors import AttachError, UserError
from tidegate.plugin.shared.counts import counted
from tidegate.plugin.shared.delay_policies import quota_for

TOPICS_MAX = 32
_DAY_MS = 86_400_000

Ask = Callable[[dict[str, Any]], dict[str, Any]]
"""Asks the daemon one query. Raises ``UserError``."""


@dataclass(frozen=True, kw_only=True)
class Places:
    """The places to examine. socket: of the daemon, None for the one of the home, else ``default_socket``."""

    home: Path | None
    socket: Path | None
    default_socket: Path
    wheel_version: str
    clock_ms: Callable[[], int]


@dataclass
class Report:
    """The findings, and the versions met."""

    findings: list[Finding] = field(default_factory=list)
    versions: dict[str, Any] = field(default_factory=dict)

    @property
    def has_fault(self) -> bool:
        """True if any verdict is a fault."""
        return any(one.verdict is Verdict.FAULT for one in self.findings)

    def sorted(self) -> list[Finding]:
        """The findings, worst first."""
        return worst_first(self.findings)


def examine(places: Places, ask: Callable[[Path], Ask], admin: BrokerAdmin | None) -> Report:
    """Everything. ``ask``: the questions to the daemon at a socket; ``admin``: None without an admin URL."""
    report = Report(versions={"tidegate": places.wheel_version})
    files = None
    if places.home is not None:
        try:
            files = look_at_home(places.home)
        except AttachError as error:
            do = "give the directory that Pulsar was unpacked into, or mend what the line says"
            found = Finding(check="conf", verdict=Verdict.FAULT, says=str(error), do=do)
            report.findings.append(found)
    if files is not None:
        report.versions["pulsar_home"] = files.attachment.pulsar_version
        report.versions["shim_jar"] = files.jar_version
        report.findings += home.home_findings(files, places.wheel_version)
    path = places.socket or _attached_socket(files) or places.default_socket
    status, reading, failure = _status(ask(path), places.clock_ms)
    report.findings += machine.socket_findings(
        look_at_socket(path, failure), None if files is None else files.owner
    )
    if status is not None:
        _about_daemon(report, status, ask(path), files, places.wheel_version)
    if admin is None:
        says = "without --admin-url nothing is said about policies, clocks, acknowledgements and consumers"
        do = "give a broker's web service: --admin-url http://HOST:8080"
        report.findings.append(Finding(check="admin", verdict=Verdict.NOTE, says=says, do=do))
    else:
        _about_broker(report, admin, status, reading, files)
        if status is not None:
            most = 0 if files is None else files.ack_ranges_max
            report.findings += _Topics(ask(path), admin, places.clock_ms, most).findings(status)
        report.findings += _of_admin(admin)
    return report


def _attached_socket(files: HomeFacts | None) -> Path | None:
    attachment: Attachment | None = None if files is None else files.attachment
    sockets = {conf.socket for conf in attachment.confs if conf.socket} if attachment else set()
    return Path(sockets.pop()) if len(sockets) == 1 else None


def _status(
    ask: Ask, clock_ms: Callable[[], int]
) -> tuple[dict[str, Any] | None, Reading | None, UserError | None]:
    """The daemon's status with its clock, or the reason why there is none."""
    asked_ms = clock_ms()
    try:
        status = ask({"what": "status"})
        return status, Reading(asked_ms, clock_ms(), status["daemon"]["now_ms"]), None
    except UserError as error:
        return None, None, error


def _about_daemon(
    report: Report, status: dict[str, Any], ask: Ask, files: HomeFacts | None, wheel_version: str
) -> None:
    report.versions["daemon"] = status["daemon"]["product"]
    report.versions["brokers"] = sorted({one["product"] for one in status["brokers"]})
    report.findings += daemon.daemon_findings(status, wheel_version)
    if files is not None:
        running = {
            one["name"]: (one["product"].removeprefix("pulsar "), one["connected_at_ms"])
            for one in status["brokers"]
        }
        report.findings += capped(home.restart_findings(files, running), daemon.EACH_MAX)
    path = status["daemon"]["data"]
    data = look_at_data(Path(path))
    if data is not None:
        report.findings += machine.data_findings(data, status["totals"])
    else:
        says = f"{path} is on another machine, or hidden from this user: nothing is said about its room"
        do = "run this beside the daemon, as its user or root"
        report.findings.append(Finding(check="data", verdict=Verdict.NOTE, says=says, do=do))
    with suppress(UserError):
        far = ask({"what": "tide", "topic": "*", "subscription": "*", "span_ms": daemon.FAR_DAYS * _DAY_MS})
        report.findings += daemon.far_findings(far)


def _about_broker(
    report: Report,
    admin: BrokerAdmin,
    status: dict[str, Any] | None,
    of_daemon: Reading | None,
    files: HomeFacts | None,
) -> None:
    version, reading = admin.version()
    if version is None:
        return
    report.versions["pulsar"] = version
    if reading is not None and of_daemon is not None:
        report.findings.append(clocks.skew_finding(of_daemon, reading))
    elif status is not None:
        says = "the broker's answers have no date, so that clocks cannot be compared"
        do = "compare them by hand: chronyc tracking"
        report.findings.append(Finding(check="clocks", verdict=Verdict.NOTE, says=says, do=do))
    factory = admin.runtime().get(TRACKER_KEY)
    if factory is not None and factory != TRACKER_FACTORY:
        report.findings.append(
            Finding(
                check="tracker",
                verdict=Verdict.FAULT,
                says=f"BYPASSED: the broker at {admin.base} runs {factory}",
                do="restart the broker"
                if files and files.attachment.attached
                else "tidegate attach, then restart it",
            )
        )


class _Topics:
    """The topics of which the daemon holds messages, the fullest first.

    ack_ranges_max: if the broker hides it.
    """

    def __init__(
        self, ask: Ask, admin: BrokerAdmin, clock_ms: Callable[[], int], ack_ranges_max: int
    ) -> None:
        self._ask = ask
        self._admin = admin
        self._clock_ms = clock_ms
        self._runtime = admin.runtime()
        self._ack_ranges_max = attach_ack_ranges_max(self._runtime, "") if self._runtime else ack_ranges_max

    def findings(self, status: Mapping[str, Any]) -> Iterator[Finding]:
        """The findings about them."""
        names = list(dict.fromkeys(one["topic"] for one in status["subscriptions"] if one["held"]))
        held: dict[str, dict[str, int]] = {}
        for one in status["subscriptions"]:
            held.setdefault(one["topic"], {})[one["subscription"]] = one["held"]
        facts = [found for name in names[:TOPICS_MAX] if (found := self._facts(name, held[name])) is not None]
        findings: dict[str, list[Finding]] = {}
        for fact in facts:
            for finding in topics.topic_findings(fact):
                findings.setdefault(finding.check, []).append(finding)
        for each in findings.values():
            yield from capped(each, daemon.EACH_MAX)
        yield from topics.passed(facts, findings)
        if len(facts) < len(names) or status["subscriptions_omitted"]:
            says = f"this is about the {len(facts):,} topics with most messages, not about all"
            do = "see the others with pulsar-admin topics stats, or ask again when these are in order"
            yield Finding(check="topics", verdict=Verdict.NOTE, says=says, do=do)

    def _facts(self, name: str, held: Mapping[str, int]) -> TopicFacts | None:
        if self._admin.spent:
            return None
        stats = self._admin.stats(name)
        ttl_ms, (age, space) = self._admin.ttl_ms(name, self._runtime), self._admin.quotas(name)
        expiry_ms = self._admin.expiry_ms(name, self._runtime)
        try:
            waiting = self._waiting(name, limits_of(ttl_ms, age, expiry_ms))
        except UserError:  # forgotten meanwhile
            return None
        places = self._admin.properties(name)
        return TopicFacts(
            name=name,
            now_ms=self._clock_ms(),
            storage_bytes=0 if stats is None else stats[0],
            subscriptions=None if stats is None else stats[1],
            ttl_ms=ttl_ms,
            age=age,
            space=space,
            expiry_ms=expiry_ms,
            waiting=waiting,
            sample=self._admin.newest(name),
            ack_ranges_max=self._ack_ranges_max,
            kept=None
            if places is None
            else {each: (entries, quota_for(places, each)) for each, entries in held.items()},
        )

    def _waiting(self, topic: str, limits_ms: set[int]) -> Waiting:
        """The topic's tide, and the part beyond each limit. Raises ``UserError``."""
        query = {"what": "tide", "topic": topic, "exact": True}
        tide = self._ask(query)
        filled = [one["from_ms"] for one in tide["buckets"] if one["entries"]]
        longest_ms = max(0, max(filled, default=0) - tide["now_ms"])
        beyond = {
            limit: daemon.surely_later(self._ask(query | {"span_ms": limit}))
            for limit in limits_ms
            if longest_ms > 0
        }
        return Waiting(tide["entries"], longest_ms, beyond)


def _of_admin(admin: BrokerAdmin) -> list[Finding]:
    if admin.failure:
        says = f"a question to {admin.base} got no answer: {admin.failure}"
        do = "is the broker up? Give its web service: --admin-url http://HOST:8080"
        return [Finding(check="admin", verdict=Verdict.FAULT, says=says, do=do)]
    if admin.refusals:
        refused = counted(len(admin.refusals), "question")
        says = f"{admin.base} refused {refused}, the first with {admin.refusals[0]}"
        do = "give --token-file with the token of a role that may see topics and the broker's configuration"
        return [Finding(check="admin", verdict=Verdict.NOTE, says=says, do=do)]
    return [Finding(check="admin", verdict=Verdict.OK, says=f"{admin.base} answers")]
