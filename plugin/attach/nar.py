"""The archive by which a broker finds Tidegate's servlet: a NAR, as ``additionalServlets`` wants it.

It has no classes: Pulsar's loader looks first into the broker's class path, with the shim: both are of one
Tidegate. Invariant: the same Tidegate makes the same bytes.
"""

from __future__ import annotations

import io
import zipfile

NAME = "tidegate-pulsar-servlet.nar"
SERVLET = "tidegate"
"""Its name in ``additionalServlets``."""
SERVLET_CLASS = "tidegate.pulsar.WebApi"
_DEFINITION = f"""\
name: {SERVLET}
description: Looks at delayed messages, and changes them
additionalServletClass: {SERVLET_CLASS}
"""
_ENTRIES = {
    "META-INF/": "",
    "META-INF/MANIFEST.MF": "Manifest-Version: 1.0\r\nNar-Id: tidegate-pulsar-servlet\r\n\r\n",
    # Pulsar warns if it is missing.
    "META-INF/bundled-dependencies/": "",
    "META-INF/services/": "",
    "META-INF/services/additional_servlet.yml": _DEFINITION,
}
_FILE_MODE = 0o100644 << 16
_FOLDER_MODE = 0o40755 << 16


def servlet_nar() -> bytes:
    """The archive."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, content in _ENTRIES.items():
            entry = zipfile.ZipInfo(name)  # of 1980, whatever the day
            entry.create_system = 3
            entry.external_attr = _FOLDER_MODE if name.endswith("/") else _FILE_MODE
            archive.writestr(entry, content)
    return packed.getvalue()
