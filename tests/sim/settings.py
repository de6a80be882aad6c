"""The daemon's settings, read as `tidegate serve` does it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

from tests.sim.kernel import Violation
from tidegate.plugin.daemon.settings import Settings, load_settings
from tidegate.plugin.shared.environment import PREFIX

_PATHS = {"data": Path("simulated"), "socket": Path("simulated.sock")}
_READERS = {each.name: each.metadata["reader"] for each in fields(Settings)}


def settings_of(changed: Mapping[str, Any]) -> Settings:
    """The settings, those in reach of a person from flags and environment. Raises Violation if they are read
    as others.
    """
    wanted = Settings(**{**_PATHS, "audit_bytes": 0, **changed})
    told = {name: value for name, value in vars(wanted).items() if name in {*_PATHS, *changed}}
    said = {name: value for name, value in told.items() if _may_be_said(name, str(value))}
    # A word of the environment says more than a flag's value.
    in_environment = [name for name, value in said.items() if isinstance(value, bool) or len(name) % 2]
    environment = {f"{PREFIX}{name}".upper(): str(said[name]) for name in in_environment}
    flags = {"audit_bytes": 0} | {name: said[name] for name in said.keys() - set(in_environment)}
    with patch.dict(os.environ, environment, clear=True):
        read = load_settings(flags)
    found = replace(read, **{name: told[name] for name in told.keys() - said.keys()})
    if found != wanted:
        raise Violation(f"the daemon reads {read}, and was told {wanted}")
    return found


def _may_be_said(name: str, text: str) -> bool:
    """False for what is smaller than a person may set: the simulation has little of everything."""
    if name.startswith("staging"):  # together they contradict one another
        return False
    try:
        _READERS[name](text)
    except ValueError:
        return False
    return True
