"""The present attachment of a Pulsar home: its jar, its conf files, and the record of the last attach."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from tidegate.plugin.attach import conf_file
from tidegate.plugin.attach import record as attach_record
from tidegate.plugin.attach.broker_keys import HORIZON_KEY, SOCKET_KEY, TRACKER_FACTORY, TRACKER_KEY
from tidegate.plugin.attach.pulsar_home import JAR_NAME, PulsarHome
from tidegate.plugin.attach.record import Record, sha256
from tidegate.plugin.errors import AttachError


@dataclass(frozen=True)
class ConfState:
    """The content of one conf file; ``socket`` is None if the key is missing."""

    name: str
    attached: bool
    socket: str | None
    horizon_ms: str | None
    edited: bool


@dataclass(frozen=True)
class Attachment:
    """The result of ``inspect``. ``jar`` is ``missing``, ``current`` (this Tidegate's own) or ``other``."""

    home: Path
    pulsar_version: str
    jar: str
    confs: tuple[ConfState, ...]

    @property
    def attached(self) -> bool:
        """True if every conf file names the tracker and its jar is there."""
        return self.jar != "missing" and all(conf.attached for conf in self.confs)

    @property
    def state(self) -> str:
        """``attached``, ``detached``, or ``partly``, which another attach or detach repairs."""
        if self.attached:
            return "attached"
        return "detached" if self.jar == "missing" and not any(c.attached for c in self.confs) else "partly"


def shim_jar() -> bytes:
    """The shim's jar in this Tidegate; raises ``AttachError`` if it was not built."""
    jar = resources.files("tidegate.plugin") / "jars" / JAR_NAME
    try:
        return jar.read_bytes()
    except OSError as error:
        raise AttachError(f"the shim's jar is not built ({jar}): run `make shim` in the checkout") from error


def inspect(path: Path) -> Attachment:
    """The attachment of the Pulsar home ``path``; raises ``AttachError`` if it is not a Pulsar home."""
    with PulsarHome.open(path) as home:
        record = record_of(home)
        installed, own = home.read_if_there(home.jar), None
        with contextlib.suppress(AttachError):
            own = shim_jar()
        if installed is None:
            jar = "other" if home.other_jars() else "missing"
        else:
            jar = "current" if installed == own else "other"
        confs = tuple(_conf_state(home, conf, record) for conf in home.confs)
        return Attachment(path, home.version, jar, confs)


def _conf_state(home: PulsarHome, conf: Path, record: Record | None) -> ConfState:
    content = home.read_conf(conf)
    values = conf_file.values(conf_file.decode(content))
    known = record.confs.get(conf.name) if record else None
    edited = known is not None and sha256(content) not in {
        known.attached_sha256,
        known.original_sha256,
        *known.former_sha256,
    }
    attached = values.get(TRACKER_KEY) == TRACKER_FACTORY
    return ConfState(conf.name, attached, values.get(SOCKET_KEY), values.get(HORIZON_KEY), edited)


def record_of(home: PulsarHome) -> Record | None:
    """The record of the last attach; None if there is none."""
    path = home.record_dir / attach_record.FILE_NAME
    content = home.read_if_there(path)
    return None if content is None else attach_record.load(content, str(path))
