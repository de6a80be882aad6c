"""An unpacked Pulsar, as ``attach`` sees it: its version, its conf files, and the shim's jars in its ``lib``.

This module writes nothing. Invariant: only a Pulsar home opens; anything else is an ``AttachError`` with the
reason.
"""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from tidegate.plugin.attach import conf_file, nar
from tidegate.plugin.attach.folder import Folder
from tidegate.plugin.errors import AttachError

LIB, CONF, RECORD = "lib", "conf", "tidegate"
CONF_NAMES = ("broker.conf", "standalone.conf")
JAR_NAME = "tidegate-pulsar-shim.jar"
KNOWN_LINES = ("4.0", "4.1", "4.2", "5.0")
_BROKER_JAR = re.compile(r"(?:org\.apache\.pulsar-)?pulsar-broker-(\d+\.\d+\.\d+[^/]*)\.jar")
_SHIM_JARS = ("tidegate-pulsar-shim", ".jar")
# In every broker's conf file: Pulsar does not start without it.
_REQUIRED_KEY = "clusterName"


@dataclass(frozen=True)
class PulsarHome:
    """A Pulsar's place and version, and its conf files that configure a broker.

    Its files are read while it is open: ``with PulsarHome.open(path) as home``.
    """

    path: Path
    version: str
    conf_names: tuple[str, ...]
    identity: tuple[int, int]
    folders: Folders = field(repr=False, compare=False)

    @classmethod
    def open(cls, path: Path) -> Self:
        """Look at ``path``; raises ``AttachError`` if it is not a Pulsar home."""
        folders = Folders.open(path)
        try:
            version = _version(path, folders.lib)
            there = set(folders.conf.names())
            names = tuple(name for name in CONF_NAMES if name in there)
            if not names:
                raise AttachError(
                    f"{path} has no conf/{CONF_NAMES[0]}: give the directory that Pulsar was unpacked into"
                )
            return cls(path, version, names, folders.home.identity, folders)
        except BaseException:
            folders.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.folders.close()

    @property
    def owner(self) -> int:
        """The uid of its owner."""
        return self.folders.home.owner

    @property
    def version_known(self) -> bool:
        """True if the shim starts in this line of Pulsar."""
        return self.version.startswith(tuple(f"{line}." for line in KNOWN_LINES))

    @property
    def confs(self) -> tuple[Path, ...]:
        """Its conf files."""
        return tuple(self.path / CONF / name for name in self.conf_names)

    @property
    def jar(self) -> Path:
        """Path of the shim that ``attach`` installs."""
        return self.path / LIB / JAR_NAME

    def nar(self, folder: str) -> Path:
        """Path of the servlet's archive in a folder of the home."""
        return self.path / folder / nar.NAME

    def has_folder(self, name: str) -> bool:
        """True if the home has a folder of this name. Raises ``AttachError`` for a link."""
        return self.folders.of(self.path / name / nar.NAME) is not None

    def other_jars(self) -> tuple[Path, ...]:
        """Shims under other names, which would be on the class path beside ``jar``."""
        names = self.folders.lib.names()
        return tuple(self.path / LIB / name for name in names if name != JAR_NAME and _is_shim(name))

    def leftovers(self, path: Path) -> tuple[Path, ...]:
        """The temporary files that a killed command left beside the file ``path``."""
        folder = self.folders.of(path)
        return () if folder is None else tuple(path.with_name(name) for name in folder.leftovers(path.name))

    @property
    def record_dir(self) -> Path:
        """The directory of the original files and of the record of changes."""
        return self.path / CONF / RECORD

    def read_conf(self, path: Path) -> bytes:
        """The bytes of a broker's conf file; raises ``AttachError`` if it is not one."""
        content = self.read(path)
        if b"\0" in content or _REQUIRED_KEY not in conf_file.values(conf_file.decode(content)):
            raise AttachError(f"{path} is not a Pulsar broker's conf file: it does not set {_REQUIRED_KEY}")
        return content

    def read(self, path: Path) -> bytes:
        """The bytes of ``path``, in the home; raises ``AttachError`` if they cannot be read."""
        content = self.read_if_there(path)
        if content is None:
            raise AttachError(f"cannot read {path}: there is no such file")
        return content

    def read_if_there(self, path: Path) -> bytes | None:
        """As ``read``, but None if there is no such file."""
        folder = self.folders.of(path)
        return None if folder is None else folder.read_if_there(path.name)


class Folders:
    """The directories of a Pulsar home that ``attach`` works in, open."""

    def __init__(self, home: Folder, lib: Folder, conf: Folder, record: Folder | None) -> None:
        self.home = home
        self.lib = lib
        self.conf = conf
        self.record = record
        self._others: dict[str, Folder | None] = {}

    @classmethod
    def open(cls, path: Path, identity: tuple[int, int] | None = None) -> Self:
        """The directories of the Pulsar home ``path``, which must be the directory ``identity`` if given.

        Raises ``AttachError``.
        """
        with contextlib.ExitStack() as stack:
            home = stack.enter_context(Folder.home(path))
            if identity is not None and home.identity != identity:
                raise AttachError(f"{path} has become another directory: run the same command again")
            lib, conf = home.folder(LIB), home.folder(CONF)
            for one in (lib, conf):
                if one is not None:
                    stack.enter_context(one)
            if lib is None or conf is None:
                raise AttachError(
                    f"{path} is not a Pulsar home: no {CONF if lib else LIB} in it; "
                    "give the directory that Pulsar was unpacked into"
                )
            record = conf.folder(RECORD)
            if record is not None:
                stack.enter_context(record)
            stack.pop_all()
            return cls(home, lib, conf, record)

    def of(self, path: Path) -> Folder | None:
        """The open directory that contains the file ``path``; None if it is missing."""
        match path.parent.relative_to(self.home.path).parts:
            case ("lib",):
                return self.lib
            case ("conf",):
                return self.conf
            case ("conf", "tidegate"):
                return self.record
            case (name,):
                if name not in self._others:
                    self._others[name] = self.home.folder(name)
                return self._others[name]
            case _:
                raise ValueError(f"{path} is none of the files of attach")

    def make(self, path: Path) -> Folder:
        """As ``of``, but the record's is made if it is missing. Raises ``OSError`` or ``AttachError``."""
        folder = self.of(path)
        if folder is None:
            if path.parent != self.conf.path / RECORD:
                raise AttachError(f"{path.parent} is gone: run the same command again")
            self.record = folder = self.conf.make(RECORD)
        return folder

    def close(self) -> None:
        """Close every directory."""
        for one in (*self._others.values(), self.record, self.conf, self.lib, self.home):
            if one is not None:
                one.close()


def _version(path: Path, lib: Folder) -> str:
    versions = {match[1] for name in lib.names() if (match := _BROKER_JAR.fullmatch(name))}
    if not versions:
        raise AttachError(
            f"{path} is not a Pulsar home: no pulsar-broker jar in its lib; "
            "give the directory that Pulsar was unpacked into"
        )
    if len(versions) > 1:
        raise AttachError(
            f"{lib.path} has the brokers of more than one Pulsar ({', '.join(sorted(versions))}): "
            "leave only the jars of one"
        )
    return versions.pop()


def _is_shim(name: str) -> bool:
    return name.startswith(_SHIM_JARS[0]) and name.endswith(_SHIM_JARS[1])
