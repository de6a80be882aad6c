"""Attaching and detaching a Pulsar home: first decide the changes, then carry them out.

``plan_attach`` and ``plan_detach`` only read; a ``Plan`` lists files with their bytes before and after, for
``--dry-run`` to show. Invariants:

- attach, then detach: every conf file is byte for byte as before, and none of our files remains. Edits in
  between stay, and only our keys go;
- attaching again with the same settings changes nothing; with others, it starts from the original file;
- a file is replaced whole (temporary file, then rename) and keeps its mode and owner; so does the copy of a
  conf file, which may hold a password;
- no link is followed and no other user's file is touched, even if the home's owner interferes: ``folder``;
- the copies of the originals and the record of the changes are written before the first conf file, with the
  present conf file in the record until then: whenever attach is interrupted, the original is found;
- temporary files of a killed attach or detach, which may contain passwords, go with the next one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from tidegate.plugin.attach import conf_file, nar, servlets, unpacking
from tidegate.plugin.attach import record as attach_record
from tidegate.plugin.attach.attachment import record_of
from tidegate.plugin.attach.broker_keys import (
    AUTO_INDEX_LOG,
    INDEX_LOG_KEY,
    TRACKER_FACTORY,
    TRACKER_KEY,
    Wanted,
    conf_advice,
    keys_of,
    settings_of,
)
from tidegate.plugin.attach.pulsar_home import CONF_NAMES, JAR_NAME, KNOWN_LINES, Folders, PulsarHome
from tidegate.plugin.attach.record import AttachedSettings, ConfRecord, Record, sha256
from tidegate.plugin.attach.servlets import OWN_FOLDER, SERVLETS_KEY, Place
from tidegate.plugin.daemon.homes.object_stores import advice_on, is_url
from tidegate.plugin.errors import AttachError

PULSARS_OWN_TRACKER = "org.apache.pulsar.broker.delayed.InMemoryDelayedDeliveryTrackerFactory"


@dataclass(frozen=True)
class Change:
    """One file before and after; None: no file. A temporary file counts as empty, and stays unread.

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


def plan_attach(path: Path, wanted: Wanted, jar: bytes, default_socket: Path) -> Plan:
    """The changes that attach the Pulsar home ``path``; raises ``AttachError`` if that is impossible."""
    with PulsarHome.open(path) as home:
        return _plan_attach(home, wanted, jar, default_socket)


def _plan_attach(home: PulsarHome, wanted: Wanted, jar: bytes, default_socket: Path) -> Plan:
    record = record_of(home)
    settings = settings_of(wanted, record.settings if record else None, default_socket)
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
    closed: set[Path] = set()
    for conf in home.confs:
        current = home.read_conf(conf)
        original, _ = _original(home, conf, current, record)
        original_text = conf_file.decode(original)
        original_values = conf_file.values(original_text)
        keys = keys_of(settings, original_values, home.version)
        if settings.servlet:
            places[conf.name] = place = _place(home, original_values)
            keys |= place.keys if place else {}
            if place and (folder := unpacking.closed_folder(original_values, home.owner)):
                closed.add(folder)
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
    notes += [
        f"{unpacking.closed_line(folder, home.owner)}: {unpacking.WAYS}, or give --no-servlet"
        for folder in sorted(closed)
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
    record = record_of(home)
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
            with contextlib.suppress(OSError):  # Missing, or it has files of others.
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


def _place(home: PulsarHome, values: Mapping[str, str]) -> Place | None:
    found = servlets.place(values, home.path)
    return found if found is not None and home.has_folder(found.folder) else None


def _nars(home: PulsarHome, record: Record | None, places: Mapping[str, Place | None]) -> list[Change]:
    """The archives that the conf files need, and those no longer needed."""
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


def _original(home: PulsarHome, conf: Path, current: bytes, record: Record | None) -> tuple[bytes, list[str]]:
    """The conf file without Tidegate, and a note for the user."""
    known = record.confs.get(conf.name) if record else None
    if known is None:
        return _without_keys(conf, current)
    if sha256(current) == known.original_sha256:
        return current, []
    backup = home.read_if_there(home.record_dir / conf.name)
    unedited = sha256(current) == known.attached_sha256
    ours = unedited or sha256(current) in known.former_sha256
    if ours and backup is not None and sha256(backup) == known.original_sha256:
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
    made = ConfRecord(sha256(original), sha256(attached), edit)
    found = sha256(current)
    if found not in {made.original_sha256, made.attached_sha256}:
        return replace(made, former_sha256=(found,))
    # The same attachment once more: its record stays unchanged.
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


def _all(home: PulsarHome, changes: list[Change]) -> tuple[Change, ...]:
    """The real changes. Temporary files of a killed command go first."""
    paths = sorted({change.path for change in changes})
    left = (Change(left, b"", None) for path in paths for left in home.leftovers(path))
    return (*left, *(change for change in changes if change.before != change.after))
