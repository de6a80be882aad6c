"""The changes of ``attach``, in ``conf/tidegate/attach.json``, for ``detach`` to revert.

Invariants: the same attachment gives the same bytes (a second ``attach`` has nothing to do); a record of a
newer format is refused.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from tidegate.plugin.attach.conf_file import Edit, Replaced
from tidegate.plugin.errors import AttachError

FORMAT = 1
FILE_NAME = "attach.json"


@dataclass(frozen=True)
class AttachedSettings:
    """The settings of an attached broker.

    horizon_ms: how far ahead due entries are pushed to the broker. index_log: the home of index logs;
        ``auto``: chosen by the conf file of each broker. servlet: the broker's web service has Tidegate's.
    """

    socket: str
    horizon_ms: int
    tune_acks: bool = False
    allow_unknown_version: bool = False
    index_log: str = "auto"
    servlet: bool = True


@dataclass(frozen=True)
class ConfRecord:
    """One conf file: SHA-256 (hex) before and after, and the changes.

    former_sha256: of the file that attach was about to replace: an interrupted attach leaves that file, and
        the copy is its original, too. An older Tidegate ignores it.
    """

    original_sha256: str
    attached_sha256: str
    edit: Edit
    former_sha256: tuple[str, ...] = ()


@dataclass(frozen=True)
class Record:
    """One attachment; ``confs`` by file name."""

    settings: AttachedSettings
    confs: Mapping[str, ConfRecord]


def dump(record: Record) -> bytes:
    """``record`` as JSON."""
    confs = {name: asdict(conf) for name, conf in record.confs.items()}
    content = {"format": FORMAT, "settings": asdict(record.settings), "confs": confs}
    return (json.dumps(content, indent=2, sort_keys=True) + "\n").encode("ascii")


def load(content: bytes, where: str) -> Record:
    """The inverse of ``dump``; raises ``AttachError``, which names ``where``, for anything else."""
    try:
        fields = json.loads(content)
        found = fields["format"]
        if found != FORMAT:
            raise AttachError(
                f"{where} is of format {found} and this Tidegate knows {FORMAT}: "
                "use the Tidegate that attached it"
            )
        confs = {name: _conf(conf) for name, conf in fields["confs"].items()}
        return Record(AttachedSettings(**fields["settings"]), confs)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise AttachError(
            f"{where} is damaged; correct it, or delete it and go by the files beside it, "
            "which are the conf files as they were"
        ) from error


def _conf(fields: Mapping[str, Any]) -> ConfRecord:
    edit = fields["edit"]
    return ConfRecord(
        fields["original_sha256"],
        fields["attached_sha256"],
        Edit(
            tuple(Replaced(**change) for change in edit["replaced"]),
            edit["appended"],
            tuple((key, value) for key, value in edit["appended_keys"]),
        ),
        tuple(fields.get("former_sha256", ())),
    )


def sha256(content: bytes) -> str:
    """The digest of a file's content, in hexadecimal."""
    return hashlib.sha256(content).hexdigest()
