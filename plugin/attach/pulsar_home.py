"""An unpacked Pulsar as ``attach`` sees it: its version, its conf files, the jars of the shim in its ``lib``.

Nothing is written here. Invariant: what opens is a Pulsar home; anything else is an ``AttachError`` that says
why.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tidegate.plugin.attach import conf_file
from tidegate.plugin.errors import AttachError

CONF_NAMES = ("broker.conf", "standalone.conf")
JAR_NAME = "tidegate-pulsar-shim.jar"
KNOWN_LINES = ("4.0", "4.1", "4.2")
_BROKER_JAR = re.compile(r"(?:org\.apache\.pulsar-)?pulsar-broker-(\d+\.\d+\.\d+[^/]*)\.jar")
_SHIM_JARS = "tidegate-pulsar-shim*.jar"
# In every broker's conf file: Pulsar does not start without it.
_REQUIRED_KEY = "clusterName"


@dataclass(frozen=True)
class PulsarHome:
    """Where a Pulsar is, which one it is, and the conf files of it that configure a broker."""

    path: Path
    version: str
    confs: tuple[Path, ...]

    @classmethod
    def open(cls, path: Path) -> Self:
        """Look at ``path``; raises ``AttachError`` if it is not a Pulsar home."""
        lib, conf = path / "lib", path / "conf"
        if not path.is_dir():
            raise AttachError(f"{path} is not a directory: give the directory that Pulsar was unpacked into")
        names = sorted(jar.name for jar in lib.glob("*.jar"))
        versions = {match[1] for name in names if (match := _BROKER_JAR.fullmatch(name))}
        if not versions:
            raise AttachError(
                f"{path} is not a Pulsar home: no pulsar-broker jar in its lib; "
                "give the directory that Pulsar was unpacked into"
            )
        if len(versions) > 1:
            raise AttachError(
                f"{lib} has the brokers of more than one Pulsar ({', '.join(sorted(versions))}): "
                "leave only the jars of one"
            )
        confs = tuple(conf / name for name in CONF_NAMES if (conf / name).is_file())
        if not confs:
            raise AttachError(
                f"{path} has no conf/{CONF_NAMES[0]}: give the directory that Pulsar was unpacked into"
            )
        return cls(path, versions.pop(), confs)

    @property
    def version_known(self) -> bool:
        """Whether the shim starts in this line of Pulsar."""
        return self.version.startswith(tuple(f"{line}." for line in KNOWN_LINES))

    @property
    def jar(self) -> Path:
        """Where ``attach`` puts the shim."""
        return self.path / "lib" / JAR_NAME

    @property
    def other_jars(self) -> tuple[Path, ...]:
        """Shims under other names, which would be on the class path beside ``jar``."""
        return tuple(sorted(jar for jar in self.jar.parent.glob(_SHIM_JARS) if jar != self.jar))

    @property
    def record_dir(self) -> Path:
        """Where ``attach`` keeps the files as they were and what it did to them."""
        return self.path / "conf" / "tidegate"


def read_conf(path: Path) -> bytes:
    """The bytes of a broker's conf file; raises ``AttachError`` if it is not one."""
    content = read(path)
    if b"\0" in content or _REQUIRED_KEY not in conf_file.values(conf_file.decode(content)):
        raise AttachError(f"{path} is not a Pulsar broker's conf file: it does not set {_REQUIRED_KEY}")
    return content


def read(path: Path) -> bytes:
    """The bytes of ``path``; raises ``AttachError`` if they cannot be read."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise _unreadable(path, error) from error


def read_if_there(path: Path) -> bytes | None:
    """The bytes of ``path``, None if there is no such file; raises ``AttachError`` if they cannot be read."""
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: OSError) -> AttachError:
    return AttachError(f"cannot read {path}: {error.strerror or error}")
