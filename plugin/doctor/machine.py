"""Checks of this machine: the socket, the data directory, room on its disk and in memory. Pure."""

from __future__ import annotations

import shlex
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from typing import Any

from tidegate.plugin.doctor.finding import Finding, Verdict
from tidegate.plugin.shared.sizes import bytes_in_words
from tidegate.plugin.shared.users import serving_user, user_name

_MIB = 1 << 20
LEAST_BYTES = 64 * _MIB
"""Free bytes below which the next spill may fail: twice the daemon's default of staged memory."""
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_OTHERS = 0o077


@dataclass(frozen=True)
class FileFacts:
    """One file: its path, mode (with its kind) and owner's uid."""

    path: str
    mode: int
    uid: int


class Silence(Enum):
    """The reason why no daemon answered: nobody listens, this user may not ask, or neither."""

    NOBODY = auto()
    DENIED = auto()
    OTHER = auto()


@dataclass(frozen=True)
class SocketFacts:
    """The daemon's socket: None for a file that is missing or hidden. failure: "" if the daemon answers."""

    path: str
    file: FileFacts | None
    directory: FileFacts | None
    failure: str
    silence: Silence = Silence.OTHER


@dataclass(frozen=True)
class DataFacts:
    """The data directory, if it is on this machine.

    open_to_others: paths of its first files that others may read or write. free_bytes: of its disk, for this
    daemon's user. memory_free_bytes: of the machine; None if it does not say.
    """

    directory: FileFacts
    open_to_others: tuple[str, ...]
    free_bytes: int
    memory_free_bytes: int | None


def socket_findings(facts: SocketFacts, home_owner: int | None = None) -> list[Finding]:
    """The findings about the daemon's socket; ``home_owner``: the Pulsar home's uid, None without one."""
    wrong = _wrong_socket(facts)
    if wrong:
        return [Finding(check="socket", verdict=Verdict.FAULT, says=says, do=do) for says, do in wrong]
    if facts.failure:
        do = _for_an_answer(facts, home_owner)
        return [Finding(check="socket", verdict=Verdict.FAULT, says=facts.failure, do=do)]
    if facts.file is not None and home_owner and facts.file.uid not in {home_owner, 0}:
        theirs, ours = user_name(home_owner), user_name(facts.file.uid)
        says = f"the home belongs to {theirs}, the daemon runs as {ours}"
        do = f"run daemon and broker as the same user: a broker of {theirs} talks to no daemon of {ours}"
        return [Finding(check="socket", verdict=Verdict.WARNING, says=says, do=do)]
    says = f"{facts.path} answers, and only its owner may use it"
    return [Finding(check="socket", verdict=Verdict.OK, says=says)]


def _for_an_answer(facts: SocketFacts, home_owner: int | None) -> str:
    """The commands, and the user to give them, for a daemon that answers there."""
    seen = (facts.file or facts.directory) if facts.silence is Silence.DENIED else facts.directory
    user = serving_user(home_owner or (0 if seen is None else seen.uid))
    if facts.silence is Silence.DENIED:
        return f"give this command as {user}, or as root"
    if facts.silence is Silence.OTHER:
        return "mend what the line says; the last lines of the daemon's log say more: journalctl -u tidegate"
    serve = f"tidegate serve --data DIR --socket {shlex.quote(facts.path)}"
    start = f"as {user}: {serve} (its unit: systemctl start tidegate)"
    if facts.directory is None:
        owner = user if home_owner else "USER"
        start = (
            f"as root: install -d -m 700 -o {owner} {shlex.quote(str(Path(facts.path).parent))}; then {start}"
        )
    return f"{start}; the last line of its log says why it ended"


def _wrong_socket(facts: SocketFacts) -> list[tuple[str, str]]:
    found = []
    directory, file = facts.directory, facts.file
    if directory is not None and directory.mode & _OTHERS_WRITE and not directory.mode & stat.S_ISVTX:
        do = f"chmod go-w {directory.path}"
        found.append((f"others can write to the socket directory {directory.path}", do))
    if file is None:
        return found
    if not stat.S_ISSOCK(file.mode):
        found.append((f"{file.path} is not a socket", "give the daemon's --socket"))
        return found
    if file.mode & _OTHERS:
        said = f"{file.path} has mode {stat.S_IMODE(file.mode):04o}, others may connect"
        found.append((said, f"chmod 600 {file.path}"))
    if directory is not None and directory.uid not in {file.uid, 0}:
        theirs, ours = user_name(directory.uid), user_name(file.uid)
        said = f"{directory.path} belongs to {theirs}, the daemon runs as {ours}"
        found.append((said, f"let root run: chown {ours} {directory.path}"))
    return found


def data_findings(facts: DataFacts, totals: Mapping[str, Any]) -> list[Finding]:
    """The findings about the data directory; ``totals`` of the daemon's status."""
    return [_modes(facts), _disk(facts, totals), *_memory(facts, totals)]


def _modes(facts: DataFacts) -> Finding:
    path = facts.directory.path
    if facts.directory.mode & _OTHERS:
        says = f"{path} has mode {stat.S_IMODE(facts.directory.mode):04o}: others may read when what is due"
        return Finding(check="data", verdict=Verdict.WARNING, says=says, do=f"chmod 700 {path}")
    if facts.open_to_others:
        says = f"{path} is closed, but {facts.open_to_others[0]} in it is open to others"
        do = f"chmod -R go= {path}"
        return Finding(check="data", verdict=Verdict.NOTE, says=says, do=do)
    return Finding(check="data", verdict=Verdict.OK, says=f"{path} is its owner's alone")


def _disk(facts: DataFacts, totals: Mapping[str, Any]) -> Finding:
    used, free = int(totals["disk_bytes"]), facts.free_bytes
    says = f"{bytes_in_words(free)} free, {bytes_in_words(used)} used{_room(free, used, int(totals['held']))}"
    if free < LEAST_BYTES:
        verdict, do = Verdict.FAULT, "free some space now: new messages are refused when the disk is full"
    elif free < used:
        verdict = Verdict.WARNING
        do = "make room: a compaction writes anew before it deletes, up to as much as is used"
    else:
        return Finding(check="disk", verdict=Verdict.OK, says=says)
    return Finding(check="disk", verdict=verdict, says=says, do=do)


def _memory(facts: DataFacts, totals: Mapping[str, Any]) -> list[Finding]:
    if facts.memory_free_bytes is None:
        return []
    used, free = int(totals["memory_bytes"]), facts.memory_free_bytes
    says = f"{bytes_in_words(free)} available, the index has {bytes_in_words(used)}"
    says += _room(free, used, int(totals["held"]))
    if free >= max(used, LEAST_BYTES):
        return [Finding(check="memory", verdict=Verdict.OK, says=says)]
    verdict = Verdict.FAULT if free < LEAST_BYTES else Verdict.WARNING
    do = "give the machine more memory, or move something else away: the kernel kills what takes the last"
    return [Finding(check="memory", verdict=verdict, says=says, do=do)]


def _room(free_bytes: int, used_bytes: int, held: int) -> str:
    """The forecast: the number of further messages that fit at the bytes that each takes now."""
    if held < _FORECAST_HELD:
        return ""
    each = max(used_bytes / held, 1.0)
    return f" ({each:,.1f} B a message): room for {int(free_bytes / each):,} more"


_FORECAST_HELD = 10_000
"""With fewer messages the fixed part of the files would be most of the bytes."""
