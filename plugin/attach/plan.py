"""Attaching and detaching a Pulsar home: first decide the changes, then carry them out.

``plan_attach`` and ``plan_detach`` only read; a ``Plan`` lists files with their bytes before and after, so
that ``--dry-run`` shows exactly the changes. Invariants:

- attach, then detach: every conf file is byte for byte as it was, and none of our files remains. If somebody
  has edited a conf file in between, the edits stay and only our keys go;
- attaching again with the same settings changes nothing; with others, it starts from the original file;
- a file is replaced whole (temporary file, then rename) and keeps its mode and owner; the copy of a conf file
  has the mode and owner of the conf file, which may hold a password;
- no link is followed and no other user's file is touched, even if the home's owner interferes: see
  ``folder``;
- the copies of the originals and the record of the changes are written before the first conf file, and know
  the file that it was until then: whenever attach is interrupted, the original is found;
- temporary files of a killed attach or detach go with the next one, as they may contain passwords.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path

from tidegate.plugin.attach import conf_file, nar, servlets
from tidegate.plugin.attach import record as attach_record
from tidegate.plugin.attach.pulsar_home import (
    CONF_NAMES,
    JAR_NAME,
    KNOWN_LINES,
    Folders,
    PulsarHome,
)
from tidegate.plugin.attach.record import AttachedSettings, ConfRecord, Record
from tidegate.plugin.attach.servlets import OWN_FOLDER, SERVLETS_KEY, Place
from tidegate.plugin.daemon.homes.object_stores import advice_on, check_known, checked_url, is_url
from tidegate.plugin.daemon.listener import PATH_BYTES_MAX
from tidegate.plugin.errors import AttachError

TRACKER_KEY = "delayedDeliveryTrackerFactoryClassName"
TRACKER_FACTORY = "tidegate.pulsar.TrackerFactory"
PULSARS_OWN_TRACKER = "org.apache.pulsar.broker.delayed.InMemoryDelayedDeliveryTrackerFactory"
SOCKET_KEY = "tidegateSocket"
HORIZON_KEY = "tidegateHorizonMillis"
ALLOW_UNKNOWN_KEY = "tidegateAllowUnknownVersion"
INDEX_LOG_KEY = "tidegateIndexLog"
NO_INDEX_LOG = "none"
BOOKKEEPER_LOG = "bookkeeper"
AUTO_INDEX_LOG = "auto"
"""In BookKeeper where the conf file is of a broker of a cluster, and none elsewhere."""
_INDEX_LOGS = (AUTO_INDEX_LOG, BOOKKEEPER_LOG, NO_INDEX_LOG)
METADATA_KEYS = ("metadataStoreUrl", "zookeeperServers")
_OF_ONE_BROKER = ("rocksdb:", "memory:")
ACK_RANGES_KEY = "managedLedgerMaxUnackedRangesToPersist"
ACK_RANGES = 1_000_000
ACK_LONG_ARRAY_KEY = "managedLedgerPersistIndividualAckAsLongArray"
_ACK_DEFAULTS = (10_000, "false")
_ACK_DEFAULTS_5 = (200_000, "true")
"""What Pulsar takes for the two keys where a conf file does not have them, up to 4.2 and from 5.0 on."""
HORIZON_MS_DEFAULT = 2_000


@dataclass(frozen=True)
class Wanted:
    """The user's wishes; None: as attached before, else the default."""

    socket: Path | None = None
    horizon_ms: int | None = None
    tune_acks: bool | None = None
    allow_unknown_version: bool | None = None
    index_log: str | None = None
    servlet: bool | None = None


@dataclass(frozen=True)
class Change:
    """One file before and after; None: no file. A temporary file counts as empty: nobody reads it.

    ``like``: the file whose mode and owner it gets. None: an existing file keeps its own, and a new one gets
    the directory's owner.
    """

    path: Path
    before: bytes | None
    after: bytes | None
    like: Path | None = None


@dataclass(frozen=True)
class Plan:
    """The changes to make, in order; ``notes`` and ``advice`` are lines for the user."""

    home: PulsarHome
    settings: AttachedSettings | None
    changes: tuple[Change, ...]
    notes: tuple[str, ...]
    advice: tuple[str, ...]


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
        record = _record(home)
        installed, own = home.read_if_there(home.jar), None
        with contextlib.suppress(AttachError):
            own = shim_jar()
        if installed is None:
            jar = "other" if home.other_jars() else "missing"
        else:
            jar = "current" if installed == own else "other"
        confs = tuple(_conf_state(home, conf, record) for conf in home.confs)
        return Attachment(path, home.version, jar, confs)


def plan_attach(path: Path, wanted: Wanted, jar: bytes, default_socket: Path) -> Plan:
    """The changes that attach the Pulsar home ``path``; raises ``AttachError`` if that is impossible."""
    with PulsarHome.open(path) as home:
        return _plan_attach(home, wanted, jar, default_socket)


def _plan_attach(home: PulsarHome, wanted: Wanted, jar: bytes, default_socket: Path) -> Plan:
    record = _record(home)
    settings = _settings(wanted, record.settings if record else None, default_socket)
    if not home.version_known and not settings.allow_unknown_version:
        known = ", ".join(f"{line}.x" for line in KNOWN_LINES)
        raise AttachError(
            f"{home.path} is Pulsar {home.version}; the shim knows {known}: "
            "use a Tidegate for that version, or add --allow-unknown-version to try it"
        )
    backups: list[Change] = []
    confs: list[Change] = []
    records: dict[str, ConfRecord] = {}
    advice: dict[str, list[str]] = {}
    in_cluster: list[str] = []
    places: dict[str, Place | None] = {}
    for conf in home.confs:
        current = home.read_conf(conf)
        original, _ = _original(home, conf, current, record)
        original_text = conf_file.decode(original)
        original_values = conf_file.values(original_text)
        keys = _keys(settings, original_values, home.version)
        if settings.servlet:
            places[conf.name] = place = _place(home, original_values)
            keys |= place.keys if place else {}
        text, edit = conf_file.apply(original_text, keys)
        attached = conf_file.encode(text)
        backup = home.record_dir / conf.name
        backups.append(Change(backup, home.read_if_there(backup), original, like=conf))
        confs.append(Change(conf, current, attached))
        former = record.confs.get(conf.name) if record else None
        records[conf.name] = _conf_record(former, original, current, attached, edit)
        if settings.index_log == AUTO_INDEX_LOG and INDEX_LOG_KEY in keys:
            in_cluster.append(conf.name)
        for line in conf_advice(conf_file.values(text), home.version):
            advice.setdefault(line, []).append(conf.name)
    record_path = home.record_dir / attach_record.FILE_NAME
    record_bytes = attach_record.dump(Record(settings, records))
    other_jars = home.other_jars()
    installed = home.read_if_there(home.jar)
    nars = _nars(home, record, places)
    changes = [
        *backups,
        Change(record_path, home.read_if_there(record_path), record_bytes),
        Change(home.jar, installed, jar),
        *(Change(other, home.read(other), None) for other in other_jars),
        *(one for one in nars if one.after is not None),
        *confs,
        # Last: a broker whose conf file names a servlet without an archive does not start.
        *(one for one in nars if one.after is None),
    ]
    notes = [f"{other.name} is of another Tidegate and goes" for other in other_jars]
    if installed is not None and installed != jar:
        notes.append(f"{JAR_NAME} is of another Tidegate and is replaced")
    notes += [
        f"{name}: its broker is of a cluster, so indexes are kept in BookKeeper too and go where their "
        "topics go (--index-log none: they do not)"
        for name in in_cluster
    ]
    notes += [
        f"{name}: its additional servlets are in no folder right in PULSAR_HOME, so Tidegate's is left out: "
        f"copy {OWN_FOLDER}/{nar.NAME} to them and add {nar.SERVLET} to {SERVLETS_KEY}, or give --no-servlet"
        for name, place in places.items()
        if place is None
    ]
    lines = [f"{', '.join(names)}: {line}" for line, names in advice.items()]
    if is_url(settings.index_log) and (why := advice_on(settings.index_log)):
        lines.append(f"--index-log: {why}")
    return Plan(home, settings, _all(home, changes), tuple(notes), tuple(lines))


def plan_detach(path: Path) -> Plan:
    """The changes that detach the Pulsar home ``path``; none if it is not attached."""
    with PulsarHome.open(path) as home:
        return _plan_detach(home)


def _plan_detach(home: PulsarHome) -> Plan:
    record = _record(home)
    changes: list[Change] = []
    notes: list[str] = []
    for conf in home.confs:
        current = home.read_conf(conf)
        original, why = _original(home, conf, current, record)
        changes.append(Change(conf, current, original))
        notes += why
    changes += [Change(jar, home.read_if_there(jar), None) for jar in (home.jar, *home.other_jars())]
    changes += [Change(path, home.read_if_there(path), None) for path in _known_nars(home, record)]
    # The record goes last: until then an interrupted detach can be repeated.
    kept = [home.record_dir / name for name in (*CONF_NAMES, attach_record.FILE_NAME)]
    changes += [Change(file, home.read_if_there(file), None) for file in kept]
    return Plan(home, None, _all(home, changes), tuple(notes), ())


def carry_out(plan: Plan) -> None:
    """Make the changes of ``plan``. Raises ``AttachError``; the same command again then does the rest."""
    home = plan.home
    with contextlib.closing(Folders.open(home.path, home.identity)) as folders:
        for change in plan.changes:
            (folders.of(change.path) or folders.conf).require_writable()
        for change in plan.changes:
            try:
                _carry_out(change, folders)
            except OSError as error:
                raise AttachError(
                    f"cannot write {change.path}: {error.strerror or error}; "
                    "correct it and run the same command again"
                ) from error
        if plan.settings is None:
            with contextlib.suppress(OSError):  # Missing, or somebody keeps files of their own there.
                folders.conf.remove_folder(home.record_dir.name)


def _carry_out(change: Change, folders: Folders) -> None:
    name = change.path.name
    if change.after is None:
        folder = folders.of(change.path)
        if folder is not None:
            folder.remove(name)
        return
    folder = folders.make(change.path)
    if change.like is not None:
        like = folders.make(change.like).status(change.like.name)
    else:
        like = folder.status(name)
    folder.replace(name, change.after, folder.new_file_status() if like is None else like)


def _settings(wanted: Wanted, before: AttachedSettings | None, default_socket: Path) -> AttachedSettings:
    otherwise = before or AttachedSettings(str(default_socket.absolute()), HORIZON_MS_DEFAULT)
    socket = otherwise.socket if wanted.socket is None else str(wanted.socket.absolute())
    if len(os.fsencode(socket)) > PATH_BYTES_MAX:
        raise AttachError(
            f"{socket} is too long for a socket ({PATH_BYTES_MAX} bytes at most): choose another --socket"
        )
    if any(ord(character) < 0x20 for character in socket) or socket != socket.strip():
        raise AttachError(f"{socket!r} has control characters or outer spaces: choose another --socket")
    return AttachedSettings(
        socket,
        otherwise.horizon_ms if wanted.horizon_ms is None else wanted.horizon_ms,
        otherwise.tune_acks if wanted.tune_acks is None else wanted.tune_acks,
        otherwise.allow_unknown_version
        if wanted.allow_unknown_version is None
        else wanted.allow_unknown_version,
        otherwise.index_log if wanted.index_log is None else _index_log(wanted.index_log),
        otherwise.servlet if wanted.servlet is None else wanted.servlet,
    )


def _index_log(wanted: str) -> str:
    if wanted in _INDEX_LOGS:
        return wanted
    try:
        if not is_url(wanted):
            raise ValueError(f"it must be {', '.join(_INDEX_LOGS)}, or a URL such as s3://bucket/folder")
        url = checked_url(wanted)
        check_known(url)
        return url
    except ValueError as error:
        # The value is not repeated: it may contain a password.
        raise AttachError(f"--index-log is refused: {error}") from None


def _keys(settings: AttachedSettings, values: Mapping[str, str], version: str) -> dict[str, str]:
    keys = {
        TRACKER_KEY: TRACKER_FACTORY,
        SOCKET_KEY: settings.socket,
        HORIZON_KEY: str(settings.horizon_ms),
    }
    if settings.tune_acks:
        keys |= _ack_keys(values, version, ACK_RANGES)
    if settings.allow_unknown_version:
        keys[ALLOW_UNKNOWN_KEY] = "true"
    index_log = settings.index_log
    if index_log == AUTO_INDEX_LOG:
        index_log = BOOKKEEPER_LOG if _is_of_cluster(values) else NO_INDEX_LOG
    if index_log != NO_INDEX_LOG:
        keys[INDEX_LOG_KEY] = index_log
    return keys


def _place(home: PulsarHome, values: Mapping[str, str]) -> Place | None:
    found = servlets.place(values, home.path)
    return found if found is not None and home.has_folder(found.folder) else None


def _nars(home: PulsarHome, record: Record | None, places: Mapping[str, Place | None]) -> list[Change]:
    """The archives that the conf files need, and those that they need no more."""
    wanted = {home.nar(place.folder if place else OWN_FOLDER) for place in places.values()}
    paths = sorted({*wanted, *_known_nars(home, record)})
    return [
        Change(path, home.read_if_there(path), nar.servlet_nar() if path in wanted else None)
        for path in paths
    ]


def _known_nars(home: PulsarHome, record: Record | None) -> list[Path]:
    """The archives that an attachment may have put somewhere, there or not."""
    folders = {OWN_FOLDER}
    for conf in home.confs:
        current = home.read_conf(conf)
        for content in (current, _original(home, conf, current, record)[0]):
            folder = servlets.folder_of(conf_file.values(conf_file.decode(content)), home.path)
            if folder is not None and home.has_folder(folder):
                folders.add(folder)
    return [home.nar(folder) for folder in sorted(folders)]


def _is_of_cluster(values: Mapping[str, str]) -> bool:
    """True for a broker with others beside it: its metadata are not in its own files."""
    stores = [values.get(key, "").strip() for key in METADATA_KEYS]
    return any(store and not store.startswith(_OF_ONE_BROKER) for store in stores)


def _ack_defaults(version: str) -> tuple[int, str]:
    major = version.partition(".")[0]
    return _ACK_DEFAULTS_5 if major.isdecimal() and int(major) >= 5 else _ACK_DEFAULTS


def _ack_keys(values: Mapping[str, str], version: str, at_least: int) -> dict[str, str]:
    """The cursor settings that keep ``at_least`` ranges of acknowledgements: those keys for which ``values``,
    or the defaults of this version of Pulsar, have less.
    """
    default_ranges, default_long_array = _ack_defaults(version)
    keys = {}
    ranges = values.get(ACK_RANGES_KEY, "").strip() or str(default_ranges)
    if not ranges.isdecimal() or int(ranges) < at_least:
        keys[ACK_RANGES_KEY] = str(at_least)
    if (values.get(ACK_LONG_ARRAY_KEY, "").strip() or default_long_array) != "true":
        keys[ACK_LONG_ARRAY_KEY] = "true"
    return keys


def ack_ranges_max(values: Mapping[str, str], version: str) -> int:
    """The ranges of acknowledgements that a Pulsar of this version stores; 0 if ``values`` name no number."""
    found = values.get(ACK_RANGES_KEY, "").strip() or str(_ack_defaults(version)[0])
    return int(found) if found.isdecimal() else 0


def conf_advice(values: Mapping[str, str], version: str) -> list[str]:
    """Advice on settings that ``attach`` leaves to the user, a line each."""
    advice: list[str] = []
    # Pulsar 5's own defaults suffice; a conf file carried over from 4 has 10,000 instead.
    default_ranges, _ = _ack_defaults(version)
    wanted = default_ranges if default_ranges == _ACK_DEFAULTS_5[0] else ACK_RANGES
    missing = [f"{key}={value}" for key, value in _ack_keys(values, version, wanted).items()]
    if missing:
        advice.append(
            f"set {' and '.join(missing)}, or Pulsar forgets acknowledgements "
            "when many messages are acknowledged out of order (--tune-acks does it)"
        )
    if values.get("delayedDeliveryEnabled", "true").strip() == "false":
        advice.append("delayedDeliveryEnabled is false, so that Pulsar delays nothing")
    return advice


def _original(home: PulsarHome, conf: Path, current: bytes, record: Record | None) -> tuple[bytes, list[str]]:
    """The conf file without Tidegate, and a note for the user."""
    known = record.confs.get(conf.name) if record else None
    if known is None:
        return _without_keys(conf, current)
    if _sha256(current) == known.original_sha256:
        return current, []
    backup = home.read_if_there(home.record_dir / conf.name)
    unedited = _sha256(current) == known.attached_sha256
    ours = unedited or _sha256(current) in known.former_sha256
    if ours and backup is not None and _sha256(backup) == known.original_sha256:
        return backup, []
    undone = conf_file.undo(conf_file.decode(current), known.edit)
    text = _without_servlet(undone.text)
    kept = [key for key in undone.kept if text == undone.text or key != SERVLETS_KEY]
    notes = [f"{conf.name}: {key} was changed and stays as it is" for key in kept]
    if text != undone.text:
        notes.append(f"{conf.name}: {SERVLETS_KEY} was changed and loses only {nar.SERVLET}")
    if not unedited:
        notes.insert(0, f"{conf.name} was edited after it was attached: the edits stay, Tidegate's keys go")
    return conf_file.encode(text), notes


def _conf_record(
    known: ConfRecord | None, original: bytes, current: bytes, attached: bytes, edit: conf_file.Edit
) -> ConfRecord:
    """The record of a conf file: it is ``current`` until ``attached`` replaces that."""
    made = ConfRecord(_sha256(original), _sha256(attached), edit)
    found = _sha256(current)
    if found not in {made.original_sha256, made.attached_sha256}:
        return replace(made, former_sha256=(found,))
    # The same attachment once more: its record stays as it is.
    return known if known is not None and replace(known, former_sha256=()) == made else made


def _without_keys(conf: Path, current: bytes) -> tuple[bytes, list[str]]:
    text = conf_file.decode(current)
    if conf_file.values(text).get(TRACKER_KEY) != TRACKER_FACTORY:
        return current, []
    text, _ = conf_file.apply(_without_servlet(text), {TRACKER_KEY: PULSARS_OWN_TRACKER})
    note = (
        f"{conf.name} was attached and there is no record of how it was: "
        f"Tidegate's keys go, {TRACKER_KEY} becomes Pulsar's default"
    )
    return conf_file.encode(conf_file.remove(text, conf_file.OWNED_PREFIX)), [note]


def _without_servlet(text: str) -> str:
    """A conf file that does not name our servlet: without its archive the broker would not start."""
    left = servlets.without(conf_file.values(text))
    text = conf_file.remove_keys(text, [key for key, value in left.items() if not value])
    return conf_file.apply(text, {key: value for key, value in left.items() if value})[0]


def _conf_state(home: PulsarHome, conf: Path, record: Record | None) -> ConfState:
    content = home.read_conf(conf)
    values = conf_file.values(conf_file.decode(content))
    known = record.confs.get(conf.name) if record else None
    edited = known is not None and _sha256(content) not in {
        known.attached_sha256,
        known.original_sha256,
        *known.former_sha256,
    }
    attached = values.get(TRACKER_KEY) == TRACKER_FACTORY
    return ConfState(conf.name, attached, values.get(SOCKET_KEY), values.get(HORIZON_KEY), edited)


def _record(home: PulsarHome) -> Record | None:
    path = home.record_dir / attach_record.FILE_NAME
    content = home.read_if_there(path)
    return None if content is None else attach_record.load(content, str(path))


def _all(home: PulsarHome, changes: list[Change]) -> tuple[Change, ...]:
    """Those that change something. Temporary files of a killed command go first."""
    paths = sorted({change.path for change in changes})
    left = (Change(left, b"", None) for path in paths for left in home.leftovers(path))
    return (*left, *(change for change in changes if change.before != change.after))


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
