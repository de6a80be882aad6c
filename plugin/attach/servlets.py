"""The place of Tidegate's servlet among those of a broker: its keys, and the folder of its archive.

Pulsar looks for all its additional servlets in one directory, so ours goes where others are. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tidegate.plugin.attach.nar import SERVLET

SERVLETS_KEY = "additionalServlets"
DIRECTORY_KEY = "additionalServletDirectory"
OWN_FOLDER = "lib"
OWN_DIRECTORY = f"./{OWN_FOLDER}"
"""Relative to the home, which Pulsar's start script makes the working directory."""
_PULSARS_DIRECTORY = "./brokerAdditionalServlet"


@dataclass(frozen=True)
class Place:
    """keys: of the conf file. folder: the name of a folder in the home."""

    keys: Mapping[str, str]
    folder: str


def place(values: Mapping[str, str], home: Path) -> Place | None:
    """The place beside the servlets of a conf file; None if those are in no folder right in the home."""
    others = _others(values)
    if not others:
        return Place({SERVLETS_KEY: SERVLET, DIRECTORY_KEY: OWN_DIRECTORY}, OWN_FOLDER)
    folder = folder_of(values, home)
    return None if folder is None else Place({SERVLETS_KEY: ",".join([*others, SERVLET])}, folder)


def folder_of(values: Mapping[str, str], home: Path) -> str | None:
    """A conf file's folder of servlets; None if it is not right in the home."""
    directory = home / directory_of(values)
    if directory.parent != home or directory.name in {"", ".", "..", "conf"}:
        return None
    return directory.name


def directory_of(values: Mapping[str, str]) -> str:
    """The directory in which Pulsar looks."""
    return values.get(DIRECTORY_KEY, "").strip() or _PULSARS_DIRECTORY


def has_ours(values: Mapping[str, str]) -> bool:
    """True if the broker has our servlet."""
    return SERVLET in _names(values)


def without(values: Mapping[str, str]) -> Mapping[str, str]:
    """The keys, with values, of a broker that must lose our servlet; a value of "" goes."""
    if not has_ours(values):
        return {}
    others = _others(values)
    ours = {DIRECTORY_KEY: ""} if not others and directory_of(values) == OWN_DIRECTORY else {}
    return {SERVLETS_KEY: ",".join(others), **ours}


def _names(values: Mapping[str, str]) -> list[str]:
    return [name for one in values.get(SERVLETS_KEY, "").split(",") if (name := one.strip())]


def _others(values: Mapping[str, str]) -> list[str]:
    return [name for name in _names(values) if name != SERVLET]
