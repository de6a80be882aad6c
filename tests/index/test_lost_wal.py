"""Damage in RocksDB's WAL: a loss of durable data is noticed, an honest power cut is none.

A directory copied while open is a killed process's remains: the page cache outlives it.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.support.catalogs import INCARNATION, OPTIONS, START_MS, spread
from tests.support.stores import copied_live
from tidegate.index.catalog.catalog import Catalog
from tidegate.index.clock import ManualClock
from tidegate.index.errors import DamagedDirectoryError, LostCommitsError, StorageError
from tidegate.index.format.chain import Chain
from tidegate.index.names import SubscriptionName
from tidegate.index.rocks.directory import WITNESS_NAME
from tidegate.index.rocks.families import open_families
from tidegate.index.rocks.rocks import RocksStore
from tidegate.index.state.positions import Position, PositionSet
from tidegate.index.store import Batch
from tidegate.index.subscription.delay_index import DelayIndex

TOPIC = "persistent://public/default/orders"
NAMES = [SubscriptionName(TOPIC, "late"), SubscriptionName(TOPIC, "quiet")]
LOST = "that had been reported durable"
SEAL = 0x5EA1
CHAIN = Chain(7, "memory")
RECORD_HEADER_BYTES = 7

Believed = dict[SubscriptionName, tuple[frozenset[Position], frozenset[Position]]]
"""Of each subscription the held and the acknowledged positions."""


def opened(path: Path) -> Catalog:
    return Catalog.open(RocksStore.open(path), ManualClock(START_MS), OPTIONS)


def believed(catalog: Catalog) -> Believed:
    return {
        index.name: (frozenset(index.state.held), frozenset(index.state.acknowledged))
        for index in catalog
        if index.state.held or index.state.acknowledged
    }


@dataclass
class Moment:
    """The state after a commit: the WALs' lengths, the witness's number, the durable records."""

    sizes: dict[str, int]
    witness: bytes
    durable: Believed


@dataclass
class Killed:
    """A killed process's remains, and their history."""

    path: Path
    moments: list[Moment] = field(default_factory=list)

    @property
    def wals(self) -> list[Path]:
        return wals_of(self.path)

    @property
    def durable(self) -> Believed:
        return self.moments[-1].durable

    def copy(self, to: Path) -> Path:
        shutil.rmtree(to, ignore_errors=True)
        return shutil.copytree(self.path, to)


def wals_of(path: Path) -> list[Path]:
    return sorted(path.glob("*.log"))


def changes(index: DelayIndex, other: DelayIndex) -> Iterator[Callable[[], object]]:
    """Frames of all kinds. The last of `other` come before the last of `index`."""
    yield lambda: other.begin_generation(SEAL)
    yield lambda: index.begin_generation(SEAL)
    yield lambda: other.add(spread(20, 9_000, ledger_id=3))
    yield lambda: other.acknowledge(PositionSet.of((3, at) for at in range(10)))
    yield lambda: index.add(spread(40, 9_000, ledger_id=5))
    yield lambda: index.acknowledge(PositionSet.of((5, at) for at in range(30)))
    yield lambda: index.unacknowledge(PositionSet.of((5, at) for at in range(7, 30)))
    yield lambda: other.unacknowledge(PositionSet.of((3, at) for at in range(4, 10)))
    yield lambda: index.mark_delete(5, 2)
    yield lambda: index.add(spread(300, 9_000, ledger_id=6))
    yield lambda: index.acknowledge(PositionSet.of((6, at) for at in range(0, 300, 3)))
    yield lambda: index.mark_delete(4, 0)
    yield lambda: index.add(spread(40, 9_000, ledger_id=7))
    yield lambda: index.acknowledge(PositionSet.of([(7, 1)]))


def run(path: Path, left: Path, between: Callable[[Catalog, RocksStore, int], None]) -> Killed:
    """Commit each change; `between(catalog, store, how many)` after each; `left`: the remains of a kill."""
    killed = Killed(left)
    store = RocksStore.open(path)
    catalog = Catalog.open(store, ManualClock(START_MS), OPTIONS)
    indexes = [catalog.subscription(name, INCARNATION) for name in NAMES]
    for index in indexes:
        catalog.chains.set(index, CHAIN)
    for count, change in enumerate(changes(*indexes)):
        change()
        catalog.commit()
        between(catalog, store, count)
        sizes = {wal.name: wal.stat().st_size for wal in wals_of(path)}
        killed.moments.append(Moment(sizes, (path / WITNESS_NAME).read_bytes(), believed(catalog)))
    copied_live(path, left)
    catalog.close()
    return killed


@pytest.fixture
def one_wal(tmp_path: Path) -> Killed:
    """One WAL has everything ever written."""
    return run(tmp_path / "live", tmp_path / "killed", lambda *_: None)


@pytest.fixture
def two_wals(tmp_path: Path) -> Killed:
    """The journal is in two WALs, because the other family was flushed in between."""

    def flush(_: Catalog, store: RocksStore, count: int) -> None:
        if count == 5:
            store._families.main.flush()

    killed = run(tmp_path / "live", tmp_path / "killed", flush)
    assert len(killed.wals) == 2
    return killed


@pytest.fixture
def persisted(tmp_path: Path) -> Killed:
    """Half of it was persisted, so that the WAL has commits of persists, too."""

    def persist(catalog: Catalog, _: RocksStore, count: int) -> None:
        if count in {4, 8}:
            catalog.persist(NAMES[0])

    return run(tmp_path / "live", tmp_path / "killed", persist)


def noticed_if_missing(path: Path, durable: Believed, caplog: pytest.LogCaptureFixture) -> bool:
    """Open the remains: durable records are there (True), or their loss is reported."""
    caplog.clear()
    try:
        catalog = opened(path)
    except DamagedDirectoryError as error:
        assert "move the directory away" in str(error)
        return False
    found = believed(catalog)
    said = [record for record in caplog.records if LOST in record.getMessage()]
    lost = catalog.stats().lost_commits
    assert (lost > 0) == (len(said) == 1)
    if found != durable:
        assert lost, "what is gone was not noticed"
    if lost:
        for index in catalog:
            assert not index.state.acknowledged
            assert index.state.mark == (-1, -1)
            assert index.state.generation == 0
            index.check()
    catalog.close()
    return found == durable and not lost


def settled(path: Path) -> None:
    """A start after a settled loss reports none, and still believes nothing.

    The cursor had the same seal throughout: acknowledgements from now on count again.
    """
    catalog = opened(path)
    assert catalog.stats().lost_commits == 0
    for index in catalog:
        assert index.state.generation == 0
        index.begin_generation(SEAL)
        assert not index.state.acknowledged
        index.acknowledge(PositionSet.of([(9, 9)]))
    catalog.close()
    catalog = opened(path)
    for index in catalog:
        index.begin_generation(SEAL)
        assert index.state.acknowledged == PositionSet.of([(9, 9)])
    catalog.close()


@pytest.mark.parametrize("which", ["one_wal", "two_wals", "persisted"])
def test_nothing_is_wrong_after_a_kill(
    which: str, request: pytest.FixtureRequest, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    killed: Killed = request.getfixturevalue(which)
    assert noticed_if_missing(killed.copy(tmp_path / "copy"), killed.durable, caplog)
    assert noticed_if_missing(tmp_path / "copy", killed.durable, caplog)


@pytest.mark.parametrize("which", ["one_wal", "two_wals", "persisted"])
def test_a_flipped_bit_anywhere_in_a_wal(
    which: str, request: pytest.FixtureRequest, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Checksum, length, type, sequence number, count, keys and values: every kind of byte."""
    killed: Killed = request.getfixturevalue(which)
    rng = random.Random(8)  # noqa: S311
    gone = 0
    for number, wal in enumerate(killed.wals):
        size = wal.stat().st_size
        header = RECORD_HEADER_BYTES + 12 + 4
        borders = [0, *(moment.sizes.get(wal.name, 0) for moment in killed.moments)]
        near = {at + byte for at in borders[::3] for byte in range(0, header, 2) if at + byte < size}
        for at in sorted(near | set(rng.sample(range(size), 40))):
            copy = killed.copy(tmp_path / "copy")
            damaged = wals_of(copy)[number]
            content = bytearray(damaged.read_bytes())
            content[at] ^= 1 << rng.randrange(8)
            damaged.write_bytes(content)
            gone += not noticed_if_missing(copy, killed.durable, caplog)
    assert gone > 30, "a flipped bit is damage nearly everywhere"


@pytest.mark.parametrize("which", ["one_wal", "two_wals", "persisted"])
def test_a_wal_cut_short_anywhere(
    which: str, request: pytest.FixtureRequest, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    killed: Killed = request.getfixturevalue(which)
    rng = random.Random(8)  # noqa: S311
    for number, wal in enumerate(killed.wals):
        whole = wal.stat().st_size
        borders = sorted({0, *(moment.sizes.get(wal.name, 0) for moment in killed.moments)} - {whole})
        between = [rng.randrange(low, high) for low, high in zip(borders, [*borders[1:], whole], strict=True)]
        for size in (*borders, *between, whole - 1):
            copy = killed.copy(tmp_path / "copy")
            os.truncate(wals_of(copy)[number], size)
            assert not noticed_if_missing(copy, killed.durable, caplog), f"cut at {size} of {whole}"


@pytest.mark.parametrize("which", ["one_wal", "two_wals", "persisted"])
def test_a_wal_that_is_deleted(
    which: str, request: pytest.FixtureRequest, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    killed: Killed = request.getfixturevalue(which)
    for number in range(len(killed.wals)):
        copy = killed.copy(tmp_path / "copy")
        wals_of(copy)[number].unlink()
        assert not noticed_if_missing(copy, killed.durable, caplog)


def test_a_power_cut_is_not_called_damage(
    one_wal: Killed, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It leaves the synced data, some of the rest, and a witness of then or of any time before."""
    rng = random.Random(8)  # noqa: S311
    (wal,) = (each.name for each in one_wal.wals)
    for now, moment in enumerate(one_wal.moments):
        following = one_wal.moments[now + 1].sizes[wal] if now + 1 < len(one_wal.moments) else None
        synced = moment.sizes[wal]
        for earlier in range(now + 1):
            copy = one_wal.copy(tmp_path / "copy")
            kept = synced if following is None else rng.randrange(synced, following)
            os.truncate(copy / wal, kept)
            (copy / WITNESS_NAME).write_bytes(one_wal.moments[earlier].witness)
            assert noticed_if_missing(copy, moment.durable, caplog), f"{kept} bytes, witness {earlier}"


def test_a_power_cut_that_tears_the_witness(
    one_wal: Killed, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Anything may be left of the slot being written; the other one stays."""
    rng = random.Random(8)  # noqa: S311
    before, now = one_wal.moments[0].witness, one_wal.moments[-1].witness
    changed = [at for at in range(len(now)) if before[at] != now[at]]
    assert changed and changed[0] // 4_096 == changed[-1] // 4_096
    for _ in range(30):
        torn = bytearray(now)
        for at in range(changed[0] // 512 * 512, changed[-1] + 1):
            torn[at] = rng.choice((before[at], now[at], rng.randrange(256)))
        copy = one_wal.copy(tmp_path / "copy")
        (copy / WITNESS_NAME).write_bytes(torn)
        assert noticed_if_missing(copy, one_wal.durable, caplog)


def cut_in_half(killed: Killed, to: Path) -> Path:
    """A copy with its WAL cut in the middle."""
    copy = killed.copy(to)
    (wal,) = wals_of(copy)
    os.truncate(wal, wal.stat().st_size // 2)
    return copy


def test_a_loss_is_said_once_and_settled_for_good(
    one_wal: Killed, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    copy = cut_in_half(one_wal, tmp_path / "copy")
    catalog = opened(copy)
    (said,) = (record.getMessage() for record in caplog.records if LOST in record.getMessage())
    for words in (str(copy), "read from the topics again", "come twice", "none is lost", "Look at the disk"):
        assert words in said
    assert 0 < catalog.stats().lost_commits < len(one_wal.moments)
    assert f"at least {catalog.stats().lost_commits} commits" in said
    catalog.close()
    settled(copy)


def test_after_a_loss_no_index_is_known_to_have_all_of_its_log(one_wal: Killed, tmp_path: Path) -> None:
    """The next opener reads the log, however many starts are in between."""

    def chains(path: Path) -> list[Chain | None]:
        catalog = opened(path)
        found = [catalog.chains.get(index) for index in catalog]
        catalog.close()
        return found

    assert chains(one_wal.copy(tmp_path / "whole")) == [CHAIN, CHAIN]
    copy = cut_in_half(one_wal, tmp_path / "copy")
    doubted = CHAIN._replace(whole=False)
    assert chains(copy) == [doubted, doubted]
    assert chains(copy) == [doubted, doubted]


def test_a_loss_is_not_forgotten_by_a_kill_before_it_is_settled(one_wal: Killed, tmp_path: Path) -> None:
    """Also if so much is written meanwhile that the database is ahead of the witness again."""
    copy = cut_in_half(one_wal, tmp_path / "copy")
    store = RocksStore.open(copy)
    found = store.loss()
    assert found is not None and found.commits > 0
    batch = Batch()
    batch.put(b"S", b"anything")
    for _ in range(2 * len(one_wal.moments)):
        store.write(batch, sync=True)
    killed = shutil.copytree(copy, tmp_path / "again")
    store.close()
    store = RocksStore.open(killed)
    again = store.loss()
    assert again is not None and again.commits == found.commits
    store.settle_loss()
    assert store.loss() is None
    settled_and_killed = shutil.copytree(killed, tmp_path / "settled")
    store.close()
    store = RocksStore.open(settled_and_killed)
    assert store.loss() is None
    store.close()


def test_a_directory_of_before_there_were_witnesses(one_wal: Killed, tmp_path: Path) -> None:
    """Nothing is known of it, so nothing is reported; from then on it has one."""
    copy = one_wal.copy(tmp_path / "copy")
    (copy / WITNESS_NAME).unlink()
    families = open_families(copy)
    families.journal.delete(b"\x00commit")
    families.close()
    catalog = opened(copy)
    assert catalog.stats().lost_commits == 0
    assert believed(catalog) == one_wal.durable
    catalog.persist(NAMES[0])
    killed = shutil.copytree(copy, tmp_path / "again")
    catalog.close()
    (wal,) = wals_of(killed)
    os.truncate(wal, 0)
    catalog = opened(killed)
    assert catalog.stats().lost_commits > 0
    catalog.close()


@pytest.mark.parametrize("how", ["deleted", "emptied", "zeroed", "flipped"])
def test_a_witness_that_is_gone_or_damaged(
    how: str, one_wal: Killed, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A loss cannot be excluded, so acknowledgements are not believed."""
    copy = one_wal.copy(tmp_path / "copy")
    witness = copy / WITNESS_NAME
    if how == "deleted":
        witness.unlink()
    elif how == "emptied":
        os.truncate(witness, 0)
    elif how == "zeroed":
        witness.write_bytes(bytes(8_192))
    else:
        witness.write_bytes(bytes(byte ^ 1 for byte in witness.read_bytes()))
    catalog = opened(copy)
    assert "cannot be told" in caplog.text and WITNESS_NAME in caplog.text
    assert catalog.stats().lost_commits == 0
    assert not any(index.state.acknowledged for index in catalog)
    held = {name: held for name, (held, _) in believed(catalog).items()}
    assert held == {name: held for name, (held, _) in one_wal.durable.items()}
    catalog.close()
    settled(copy)


def test_a_daemon_of_before_may_use_the_directory_in_between(one_wal: Killed, tmp_path: Path) -> None:
    """It knows neither the witness nor the numbers; its writes are no loss."""
    copy = one_wal.copy(tmp_path / "copy")
    families = open_families(copy)
    families.main.put(b"S", b"without a number")
    families.close()
    store = RocksStore.open(copy)
    assert store.loss() is None
    store.close()


def test_what_is_gone_when_a_failed_store_is_opened_again(one_wal: Killed, tmp_path: Path) -> None:
    """The index's memory builds on it: nothing is written any more, and a start puts it right."""
    copy = one_wal.copy(tmp_path / "copy")
    store = RocksStore.open(copy)
    batch = Batch()
    batch.put(b"S", b"1")
    store.write(batch, sync=True)
    older = shutil.copytree(copy, tmp_path / "older")
    store._families.close()  # which writes memory into tables
    shutil.rmtree(copy)
    shutil.copytree(older, copy)
    for wal in wals_of(copy):
        os.truncate(wal, 0)
    with pytest.raises(StorageError):
        store.write(batch, sync=True)
    for _ in range(2):
        with pytest.raises(LostCommitsError, match="begins anew"):
            store.write(batch, sync=True)
    store.close()
    store = RocksStore.open(copy)
    found = store.loss()
    assert found is not None and found.commits > 0
    store.close()


def test_a_failed_store_whose_directory_is_gone_is_lost(tmp_path: Path) -> None:
    """Whatever failed first: a flush that cannot make its table reports no more than that."""
    store = RocksStore.open(tmp_path / "data")
    batch = Batch()
    batch.put(b"a", b"1")
    store.write(batch, sync=True)
    shutil.rmtree(tmp_path / "data")
    with contextlib.suppress(Exception):
        store._families.main.flush()
    for sync in (False, True, True):
        with contextlib.suppress(StorageError):
            store.write(batch, sync=sync)
    with pytest.raises(LostCommitsError, match="deleted or replaced"):
        store.write(batch, sync=False)
    with contextlib.suppress(StorageError):
        store.close()


def test_lost_commits_are_counted(tmp_path: Path) -> None:
    """`tidegate_lost_commits` and the log have the number."""

    def commit(path: Path, count: int) -> None:
        store = RocksStore.open(path)
        for _ in range(count):
            batch = Batch()
            batch.put(b"a", b"1")
            store.write(batch, sync=False)
            store.write(batch, sync=True)
        store.close()

    commit(tmp_path / "now", 4)
    before = Path(shutil.copytree(tmp_path / "now", tmp_path / "before"))
    commit(tmp_path / "now", 3)
    shutil.copy(tmp_path / "now" / WITNESS_NAME, before)
    store = RocksStore.open(before)
    loss = store.loss()
    assert loss is not None and loss.commits == 3
    store.close()


def test_a_failed_write_is_no_loss(tmp_path: Path) -> None:
    """Its number is not given again, whether the batch is there or not."""
    store = RocksStore.open(tmp_path)
    batch = Batch()
    batch.put(b"a", b"1")
    store.write(batch, sync=True)
    store._failed = True
    store._commit += 1  # as if its batch had got lost
    store.write(batch, sync=True)
    assert store.loss() is None
    store.close()
    store = RocksStore.open(tmp_path)
    assert store.loss() is None
    store.close()


def test_the_options_on_which_this_rests(tmp_path: Path) -> None:
    RocksStore.open(tmp_path).close()
    (options,) = tmp_path.glob("OPTIONS-*")
    used = dict(line.strip().split("=", 1) for line in options.read_text().splitlines() if "=" in line)
    assert used["wal_recovery_mode"] == "kPointInTimeRecovery"
    assert used["track_and_verify_wals_in_manifest"] == "true"
    assert used["recycle_log_file_num"] == "0"
    assert used["manual_wal_flush"] == "false"


def add_small_commits(path: Path, left: Path, count: int = 700) -> Killed:
    """A WAL of several blocks of 32 KiB, with most of its records in one block."""
    killed = Killed(left)
    store = RocksStore.open(path)
    catalog = Catalog.open(store, ManualClock(START_MS), OPTIONS)
    index = catalog.subscription(NAMES[0], INCARNATION)
    for at in range(count):
        index.add(spread(1 + at % 5, 9_000, ledger_id=at))
        catalog.commit()
    index.acknowledge(PositionSet.of((at, 0) for at in range(0, count, 7)))
    catalog.commit()
    killed.moments.append(Moment({}, b"", believed(catalog)))
    copied_live(path, left)
    catalog.close()
    return killed


def test_zeros_in_place_of_a_page(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """RocksDB takes zeros at a record's begin for the end of a block, and reads on behind it."""
    killed = add_small_commits(tmp_path / "live", tmp_path / "killed")
    (wal,) = killed.wals
    size = wal.stat().st_size
    assert size > 3 * 32_768
    for page in range(0, size, 4_096):
        copy = killed.copy(tmp_path / "copy")
        with wals_of(copy)[0].open("r+b") as file:
            file.seek(page)
            file.write(bytes(min(4_096, size - page)))
        assert not noticed_if_missing(copy, killed.durable, caplog), f"zeros at {page}"


def test_zeros_in_place_of_whole_records(tmp_path: Path) -> None:
    """The worst place: the zeros begin at a record's begin, and the next block begins with a whole one."""
    store = RocksStore.open(tmp_path / "live")
    (wal,) = wals_of(tmp_path / "live")

    def put(key: bytes, size_bytes: int) -> int:
        batch = Batch()
        batch.put(key, bytes([7]) * size_bytes)
        store.write(batch, sync=True)
        return wal.stat().st_size

    start = put(b"S0", 20_000)
    overhead = put(b"S1", 10_000) - start - 10_000
    assert put(b"S2", 32_768 - wal.stat().st_size - overhead) == 32_768
    put(b"S3", 100)
    copied_live(tmp_path / "live", tmp_path / "killed")
    store.close()
    (wal,) = wals_of(tmp_path / "killed")
    with wal.open("r+b") as file:
        file.seek(start)
        file.write(bytes(32_768 - start))
    store = RocksStore.open(tmp_path / "killed")
    assert store.get(b"S0") is not None
    assert store.get(b"S1") is store.get(b"S2") is None
    assert store.get(b"S3") is None, "what came after the damage was taken all the same"
    assert store.loss() is not None
    store.close()
