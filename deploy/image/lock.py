"""Writes the requirements of the image with the hash of each wheel, beside this file.

usage: python deploy/image/lock.py     after make lock and make wheel, with the versions of constraints.txt
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PYTHON = "3.11"
# Of Debian 12, the base of the image, whose glibc is 2.36.
GLIBC_MINORS = (5, 12, 17, 24, 27, 28, 31, 34, 35)
MACHINES = ("x86_64", "aarch64")
TOOLS = ["pip", "cyclonedx-bom>=7,<8"]
"""For the build alone: the installer, and the maker of the SBOM."""


def wheels(requirements: list[str], machine: str) -> dict[str, tuple[str, str]]:
    """The version and sha256 of each wheel that pip would install on Python 3.11 and this machine."""
    platforms = [f"--platform=manylinux_2_{minor}_{machine}" for minor in GLIBC_MINORS]
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        subprocess.run(  # noqa: S603
            [
                sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--dry-run",
                "--ignore-installed", f"--report={report}", f"--target={folder}/none", "--only-binary=:all:",
                f"--python-version={PYTHON}", f"--platform=manylinux2014_{machine}", *platforms,
                f"--constraint={ROOT / 'constraints.txt'}", *requirements,
            ],
            check=True,
        )  # fmt: skip
        found = json.loads(report.read_text(encoding="utf-8"))["install"]
    return {
        one["metadata"]["name"].lower().replace("_", "-"): (
            one["metadata"]["version"],
            one["download_info"]["archive_info"]["hashes"]["sha256"],
        )
        for one in found
    }


def lock(name: str, requirements: list[str]) -> None:
    """Write one file."""
    of_machines = [wheels(requirements, machine) for machine in MACHINES]
    lines = [f"# Python {PYTHON}, {' and '.join(MACHINES)}. Made by: python deploy/image/lock.py"]
    for project in sorted(set().union(*of_machines) - {"tidegate"}):
        found = [of_machine[project] for of_machine in of_machines]
        (version,) = {version for version, _ in found}
        hashes = [f"    --hash=sha256:{digest}" for digest in dict.fromkeys(digest for _, digest in found)]
        lines.append(" \\\n".join([f"{project}=={version}", *hashes]))
    (HERE / name).write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    (wheel,) = (ROOT / "dist").glob("tidegate-*.whl")
    lock("requirements.txt", [f"{wheel}[otel,s3]"])
    lock("tools.txt", TOOLS)
