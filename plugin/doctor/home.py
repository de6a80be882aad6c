"""Checks of a Pulsar home: the attachment, the shim's jar, the settings of acknowledgements. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tidegate.plugin.attach import unpacking
from tidegate.plugin.attach.attachment import Attachment
from tidegate.plugin.doctor.finding import Finding, Verdict


@dataclass(frozen=True)
class HomeFacts:
    """A home, from its files.

    advice: the lines of ``attach``, by conf file. jar_version: of the shim in the home, None if it says none.
    changed_ms: the time of the latest change of a conf file or the jar. ack_ranges_max: the least limit of
    the conf files, 0 if unknown. owner: the uid of the home's. closed_folders: where its broker, if that is
    its user, cannot unpack the servlet.
    """

    attachment: Attachment
    advice: Mapping[str, tuple[str, ...]]
    jar_version: str | None
    changed_ms: int
    ack_ranges_max: int
    owner: int
    closed_folders: tuple[Path, ...] = ()


def home_findings(facts: HomeFacts, wheel_version: str) -> list[Finding]:
    """The findings about a home; ``wheel_version`` is this Tidegate's."""
    return [_attached(facts), *_unpacking(facts), _jar(facts, wheel_version), *_acks(facts)]


def restart_findings(facts: HomeFacts, brokers: Mapping[str, tuple[str, int]]) -> list[Finding]:
    """The brokers that run something else than the home has.

    brokers: by name the version of Pulsar, and the time of the connection in ms. A broker of another home may
    be connected, so this is no fault.
    """
    found = []
    for version, connected_ms in brokers.values():
        if version != facts.attachment.pulsar_version:
            says = f"a connected broker runs Pulsar {version}, {facts.attachment.home} has "
            says += facts.attachment.pulsar_version
        elif connected_ms < facts.changed_ms:
            says = f"conf or jar of {facts.attachment.home} changed after a broker of its version connected"
        else:
            continue
        do = "restart the broker, if it is of this home"
        found.append(Finding(check="restart", verdict=Verdict.NOTE, says=says, do=do))
    return found


def _attached(facts: HomeFacts) -> Finding:
    found = facts.attachment
    where = f"{found.home} (Pulsar {found.pulsar_version})"
    sockets = {conf.socket for conf in found.confs if conf.socket}
    if found.attached and len(sockets) == 1:
        return Finding(check="conf", verdict=Verdict.OK, says=f"{where} is attached to {sockets.pop()}")
    attach = f"tidegate attach {found.home}, then restart the broker"
    if found.attached:
        said = f"{where}: its conf files name {len(sockets)} sockets"
        return Finding(check="conf", verdict=Verdict.FAULT, says=said, do=attach)
    how = "is not attached" if found.state == "detached" else "is attached in part only"
    without = [conf.name for conf in found.confs if not conf.attached]
    names = f": {', '.join(without)} names another tracker" if without else ""
    return Finding(check="conf", verdict=Verdict.FAULT, says=f"{where} {how}{names}", do=attach)


def _unpacking(facts: HomeFacts) -> list[Finding]:
    return [
        Finding(
            check="conf",
            verdict=Verdict.WARNING,
            says=unpacking.closed_line(folder, facts.owner),
            do=unpacking.WAYS,
        )
        for folder in facts.closed_folders
    ]


def _jar(facts: HomeFacts, wheel_version: str) -> Finding:
    found = facts.attachment
    if found.jar == "missing":
        says, verdict = f"{found.home}/lib has no shim", Verdict.FAULT
    elif found.jar == "current":
        return Finding(check="jar", verdict=Verdict.OK, says=f"the shim is this Tidegate's, {wheel_version}")
    else:
        version = facts.jar_version or "unknown"
        says = f"the shim is another build, version {version}; this Tidegate is {wheel_version}"
        verdict = Verdict.WARNING
    do = f"tidegate attach {found.home}, then restart broker and daemon together"
    return Finding(check="jar", verdict=verdict, says=says, do=do)


def _acks(facts: HomeFacts) -> list[Finding]:
    names_of: dict[str, list[str]] = {}
    for name, each in facts.advice.items():
        for line in each:
            names_of.setdefault(line, []).append(name)
    if not names_of:
        says = "Pulsar stores the acknowledgements of many delayed messages"
        return [Finding(check="ack-settings", verdict=Verdict.OK, says=says)]
    return [
        Finding(
            check="ack-settings",
            verdict=Verdict.WARNING,
            says=f"{', '.join(names)}: advice of attach: {line}",
            do="correct the conf file, then restart the broker",
        )
        for line, names in names_of.items()
    ]
