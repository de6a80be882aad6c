"""Looking at WALs before RocksDB does: the same as a walk record by record, and nothing without damage."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.support.catalogs import NAME, OPTIONS, opened, spread
from tests.support.stores import copied_live
from tidegate.index.errors import DamagedDirectoryError
from tidegate.index.rocks.directory import WITNESS_NAME
from tidegate.index.rocks.rocks import RocksStore
from tidegate.index.rocks.wal_walk import find_stops, stop_at_damage

BLOCK = 32_768
HEADER = 7
INSTEAD = {5: 1, 6: 2, 7: 3, 8: 4, 11: 3}


def wal_of(sizes: list[int], rng: random.Random) -> bytearray:
    """A WAL with records of these sizes, each cut where a block ends, as RocksDB writes them."""
    wal = bytearray()
    for size in sizes:
        left, begun = size, False
        while True:
            room = BLOCK - len(wal) % BLOCK
            if room < HEADER:
                wal += bytes(room)
                room = BLOCK
            part = min(left, room - HEADER)
            left -= part
            kind = (4 if begun else 1) if not left else (3 if begun else 2)
            wal += rng.randbytes(4) + part.to_bytes(2, "little") + bytes([kind]) + rng.randbytes(part)
            begun = True
            if not left:
                break
    return wal


def walk(wal: bytes | bytearray) -> list[int]:
    """Where the records begin."""
    at, found = 0, []
    while at + HEADER <= len(wal):
        if BLOCK - at % BLOCK < HEADER:
            at += BLOCK - at % BLOCK
            continue
        found.append(at)
        at += HEADER + int.from_bytes(wal[at + 4 : at + 6], "little")
    return found


def stops(wal: bytes | bytearray, *, is_last: bool = True) -> dict[int, int]:
    return find_stops(np.frombuffer(bytes(wal), dtype=np.uint8), is_last=is_last)


@pytest.mark.parametrize("seed", range(20))
def test_a_recycled_type_is_found_wherever_it_is_and_nothing_else(seed: int) -> None:
    rng = random.Random(seed)  # noqa: S311
    wal = wal_of([rng.choice((0, 12, 300, 5_000, 70_000)) for _ in range(60)], rng)
    assert stops(wal) == stops(wal, is_last=False) == {}
    at = rng.choice(walk(wal)) + 6
    for kind, instead in INSTEAD.items():
        wal[at] = kind
        assert stops(wal) == {at: instead}
    assert stops(wal[: rng.randrange(len(wal))]).keys() <= {at}


@pytest.mark.parametrize("seed", range(20))
def test_zeros_are_the_end_of_the_last_wal_only(seed: int) -> None:
    rng = random.Random(seed)  # noqa: S311
    wal = wal_of([rng.choice((12, 300, 5_000, 70_000)) for _ in range(60)], rng)
    at = rng.choice(walk(wal))
    zeroed = bytes(wal[:at]) + bytes(len(wal) - at)
    if len(wal) - at >= HEADER:
        assert stops(zeroed) == {}
        assert stops(zeroed, is_last=False) == {at + 6: 1}
    if len(wal) - at > BLOCK:
        behind = bytes(wal[:at]) + bytes(BLOCK) + bytes(wal[at + BLOCK :])
        assert stops(behind) == {at + 6: 1}


def test_wals_without_damage_are_left_as_they_are(tmp_path: Path) -> None:
    store = RocksStore.open(tmp_path)
    catalog, index = opened(store, OPTIONS)
    for at in range(50):
        index.add(spread(200 + at, 8_000, ledger_id=at))
        catalog.commit()
        if at % 20 == 10:
            catalog.persist(NAME)
        if at == 30:
            store._families.main.flush()
    files = [*tmp_path.glob("*.log"), *tmp_path.glob("MANIFEST-*")]
    assert len(files) == 3
    before = {path: path.read_bytes() for path in files}
    stop_at_damage(tmp_path)
    assert {path: path.read_bytes() for path in files} == before
    catalog.close()


def test_a_type_is_put_right_if_one_bit_of_it_had_flipped(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """RocksDB alone would loop for ever here."""
    store = RocksStore.open(tmp_path / "live")
    catalog, index = opened(store, OPTIONS)
    index.add(spread(200, 8_000))
    catalog.commit()
    left = tmp_path / "killed"
    left.mkdir()
    for path in (tmp_path / "live").iterdir():
        (left / path.name).write_bytes(path.read_bytes())
    catalog.close()
    (wal,) = left.glob("*.log")
    (manifest,) = left.glob("MANIFEST-*")
    for path in (wal, manifest):
        with path.open("r+b") as file:
            at = walk(path.read_bytes())[1] + 6
            kind = os.pread(file.fileno(), 1, at)[0]
            assert kind in {1, 2, 3}
            os.pwrite(file.fileno(), bytes([kind ^ 4]), at)
    catalog, index = opened(RocksStore.open(left), OPTIONS)
    assert str(wal) in caplog.text and str(manifest) in caplog.text
    assert catalog.stats().lost_commits == 0
    assert len(index.state.held) == 200
    catalog.close()


def test_a_manifest_that_was_being_made_when_the_power_went_does_not_count(tmp_path: Path) -> None:
    """RocksDB names it in CURRENT when it is synced; until then its pages are on disk in any order."""
    store = RocksStore.open(tmp_path)
    catalog, index = opened(store, OPTIONS)
    index.add(spread(200, 8_000))
    catalog.commit()
    catalog.close()
    (current,) = tmp_path.glob("MANIFEST-*")
    (tmp_path / "MANIFEST-000999").write_bytes(bytes(512) + current.read_bytes()[512:] + b"torn")
    # A daemon's first start has none yet, and looks whose the directory is.
    (tmp_path / WITNESS_NAME).unlink()
    catalog, index = opened(RocksStore.open(tmp_path), OPTIONS)
    assert len(index.state.held) == 200
    catalog.close()


def killed(directory: Path, live: Path) -> int:
    """The positions held by a store whose manifest tells of past WALs and tables, and which has committed
    since.
    """
    store = RocksStore.open(live)
    catalog, index = opened(store, OPTIONS)
    for at in range(14):
        index.add(spread(100, 8_000, ledger_id=at, seed=at))
        catalog.commit()
        if at % 3 == 2:
            catalog.persist(NAME)
            store._families.main.flush()
            store._families.journal.flush()
        if at == 8:
            store.tidy()
    copied_live(live, directory)
    held = len(index.state.held)
    catalog.close()
    return held


def test_what_a_manifest_had_synced_is_not_passed_over(tmp_path: Path) -> None:
    """Any record loses its beginning: RocksDB alone would skip the manifest's rest, and silently open with a
    part of the synced data, as the last commit is in a later WAL.
    """
    held = killed(tmp_path / "killed", tmp_path / "live")
    (manifest,) = (tmp_path / "killed").glob("MANIFEST-*")
    content = manifest.read_bytes()
    refused = 0
    for at in walk(content):
        damaged = tmp_path / str(at)
        shutil.copytree(tmp_path / "killed", damaged)
        (damaged / manifest.name).write_bytes(content[:at] + bytes(HEADER) + content[at + HEADER :])
        try:
            catalog, index = opened(RocksStore.open(damaged), OPTIONS)
        except DamagedDirectoryError:
            refused += 1
            continue
        assert catalog.stats().lost_commits or len(index.state.held) == held, at
        index.check()
        catalog.close()
    assert refused > 3
