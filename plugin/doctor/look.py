"""A look at this machine's files: the Pulsar home, the socket, the data directory. Changes nothing."""

from __future__ import annotations

import io
import os
import re
import zipfile
from contextlib import suppress
from itertools import islice
from pathlib import Path

from tidegate.plugin.attach import conf_file, servlets, unpacking
from tidegate.plugin.attach.attachment import inspect
from tidegate.plugin.attach.broker_keys import ack_ranges_max, conf_advice
from tidegate.plugin.attach.pulsar_home import PulsarHome
from tidegate.plugin.doctor.home import HomeFacts
from tidegate.plugin.doctor.machine import DataFacts, FileFacts, Silence, SocketFacts
from tidegate.plugin.errors import UserError

_FILES_MAX = 1_000
_SHOWN_MAX = 5
_MANIFEST_BYTES = 1 << 16
_MEMINFO = Path("/proc/meminfo")


def look_at_home(path: Path) -> HomeFacts:
    """A Pulsar home's files. Raises ``AttachError``."""
    attachment = inspect(path)
    with PulsarHome.open(path) as opened:
        values = {
            conf.name: conf_file.values(conf_file.decode(opened.read_conf(conf))) for conf in opened.confs
        }
        jar, owner = opened.read_if_there(opened.jar), opened.owner
        changed_s = [one.lstat().st_mtime for one in (*opened.confs, opened.jar) if one.exists()]
    served = [one for one in values.values() if servlets.has_ours(one)]
    closed = {folder for one in served if (folder := unpacking.closed_folder(one, owner)) is not None}
    version = attachment.pulsar_version
    advice = {name: tuple(conf_advice(one, version)) for name, one in values.items()}
    most = min((ack_ranges_max(one, version) for one in values.values()), default=0)
    return HomeFacts(
        attachment,
        advice,
        None if jar is None else jar_version(jar),
        round(max(changed_s, default=0.0) * 1_000),
        most,
        owner,
        tuple(sorted(closed)),
    )


def jar_version(jar: bytes) -> str | None:
    """The version in a jar's manifest; None if it has none or is damaged."""
    try:
        with zipfile.ZipFile(io.BytesIO(jar)) as archive, archive.open("META-INF/MANIFEST.MF") as manifest:
            text = manifest.read(_MANIFEST_BYTES).decode("utf-8", "replace")
    except (zipfile.BadZipFile, KeyError, OSError, ValueError, NotImplementedError, RuntimeError, EOFError):
        return None
    found = re.search(r"^Implementation-Version: ([^\r\n]{1,80})", text, re.MULTILINE)
    return found[1] if found else None


def look_at_socket(path: Path, failure: UserError | None) -> SocketFacts:
    """The socket's file and directory, as far as this user may see them."""
    places = str(path), _file(path), _file(path.parent, follow=True)
    return (
        SocketFacts(*places, "") if failure is None else SocketFacts(*places, str(failure), _silence(failure))
    )


def _silence(failure: UserError) -> Silence:
    match failure.__cause__:
        case FileNotFoundError() | ConnectionRefusedError():
            return Silence.NOBODY
        case PermissionError():
            return Silence.DENIED
    return Silence.OTHER


def look_at_data(path: Path) -> DataFacts | None:
    """The data directory and the machine's room; None if it is not here, or hidden from this user."""
    try:
        facts = _file(path)
        disk = os.statvfs(path)
        # the store deletes some meanwhile
        files = [_file(one) for one in islice(path.rglob("*"), _FILES_MAX)]
    except OSError:
        return None
    if facts is None:
        return None
    free = disk.f_bavail * disk.f_frsize
    wide = [one.path for one in files if one is not None and one.mode & 0o077]
    return DataFacts(facts, tuple(wide[:_SHOWN_MAX]), free, _memory_free(_MEMINFO))


def _file(path: Path, *, follow: bool = False) -> FileFacts | None:
    try:
        status = path.stat() if follow else path.lstat()
    except OSError:
        return None
    return FileFacts(str(path), status.st_mode, status.st_uid)


def _memory_free(path: Path) -> int | None:
    with suppress(OSError):
        found = re.search(r"^MemAvailable:\s+(\d+) kB", path.read_text("ascii", "replace"), re.MULTILINE)
        return int(found[1]) * 1024 if found else None
    return None
