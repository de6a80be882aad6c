"""A small disk for one daemon."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tidegate.plugin.drill.stands.small_disk import SmallDisk, SmallDiskError


def test_a_small_disk_is_filled_and_freed(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        with pytest.raises(SmallDiskError):
            SmallDisk(tmp_path / "disk", 1 << 20)
        return
    disk = SmallDisk(tmp_path / "disk", 1 << 20)
    try:
        assert disk.fill() == 1 << 20
        with pytest.raises(OSError, match="No space left"):
            (disk.inside / "more").write_bytes(b"x" * 5_000)
        disk.free()
        (disk.inside / "more").write_bytes(b"x" * 5_000)
        assert not list((tmp_path / "disk").iterdir()), "others do not see it"
    finally:
        disk.close()
