"""The folder in which a broker unpacks its NARs; without the right to write there it does not start."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path

from tidegate.plugin.attach.nar import NAME
from tidegate.plugin.shared.users import user_name

KEY = "narExtractionDirectory"
JAVAS_FOLDER = "/tmp"  # noqa: S108
"""Its value if it has none."""
WAYS = f"let root delete it, or set {KEY} to a folder of its own"
"""The ways out of a closed folder."""


def closed_folder(values: Mapping[str, str], owner: int) -> Path | None:
    """The folder in which a broker of ``owner`` cannot unpack the servlet; None if it may, as root always.

    values: of its conf file. Pulsar makes missing folders, so the innermost existing one decides. One that
    its group may write counts as open: the owner may be of the group.
    """
    parent = Path(values.get(KEY, "").strip() or JAVAS_FOLDER)
    for path in (parent / "pulsar-nar" / f"{NAME}-unpacked", parent / "pulsar-nar", parent):
        try:
            status = path.stat()
        except OSError:
            continue
        return None if _is_open(status, owner) else path
    return None


def closed_line(folder: Path, owner: int) -> str:
    """The reason why a broker of ``owner`` does not start; ``folder`` is of another user."""
    user = user_name(owner)
    return f"{folder} is not {user}'s: its broker cannot unpack the servlet there, and does not start"


def _is_open(status: os.stat_result, owner: int) -> bool:
    return owner in {0, status.st_uid} or bool(status.st_mode & (stat.S_IWGRP | stat.S_IWOTH))
