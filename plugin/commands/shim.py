"""``tidegate shim``: the files of a broker whose home ``attach`` cannot reach, as in a container."""

from __future__ import annotations

import json
import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from tidegate.plugin.attach.attachment import shim_jar
from tidegate.plugin.attach.nar import NAME, servlet_nar
from tidegate.plugin.attach.pulsar_home import JAR_NAME
from tidegate.plugin.errors import AttachError

_MODE = 0o644


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command(epilog="Example: tidegate shim /tidegate/lib")(shim)


def shim(
    directory: Annotated[
        Path, typer.Argument(metavar="DIRECTORY", help="An existing directory.", show_default=False)
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Put the files that a broker needs into DIRECTORY.

    The shim's jar, for PULSAR_EXTRA_CLASSPATH, and the servlet's archive, for additionalServletDirectory. For
    a container; elsewhere tidegate attach does it, and edits the conf files, too.
    """
    files = {JAR_NAME: shim_jar(), NAME: servlet_nar()}
    paths = [_replace(directory, name, content) for name, content in files.items()]
    print(json.dumps({"files": paths}) if as_json else "\n".join(paths))


def _replace(directory: Path, name: str, content: bytes) -> str:
    """The path of the file, whole or absent: a broker may be reading the former one."""
    path = directory / name
    part: Path | None = None
    try:
        descriptor, made = tempfile.mkstemp(prefix=f".{name}.", dir=directory)
        part = Path(made)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            os.fchmod(file.fileno(), _MODE)
        part.replace(path)
    except OSError as error:
        if part is not None:
            with suppress(OSError):
                part.unlink(missing_ok=True)
        raise AttachError(
            f"cannot write {path}: {error.strerror}; give an existing directory that is yours"
        ) from error
    return str(path)
