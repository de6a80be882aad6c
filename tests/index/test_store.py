"""The contract of all stores, run against each of them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.flaky_store import FlakyStore
from tests.support.stores import CrashStore, FailingStore, UnreadableStore, copied_live
from tidegate.index.errors import ClosedError
from tidegate.index.rocks.rocks import RocksStore
from tidegate.index.store import Batch, MemoryStore, Store

Make = Callable[[], Store]
END = b"\xff" * 16


class Makers(NamedTuple):
    """restarted(store): what a process finds that starts after the one that used `store` was killed."""

    new: Callable[[Path], Store]
    restarted: Callable[[Any, Path], Store]


def restarted_rocks(store: RocksStore, path: Path) -> Store:
    """Its files as they are while it is open: what is still in the process is lost."""
    copied_live(Path(str(store)), path)
    return RocksStore.open(path)


def restarted_failing(store: FailingStore, _: Path) -> Store:
    made = FailingStore()
    made.memory = store.memory.reopen()
    return made


def restarted_flaky(store: FlakyStore, _: Path) -> Store:
    made = FlakyStore()
    made.memory = store.memory.reopen()
    return made


MAKERS = {
    "memory": Makers(lambda _: MemoryStore(), lambda store, _: store.reopen()),
    "crash": Makers(lambda _: CrashStore(), lambda store, _: store.crashed(0)),
    "rocks": Makers(RocksStore.open, restarted_rocks),
    "failing": Makers(lambda _: FailingStore(), restarted_failing),
    "flaky": Makers(lambda _: FlakyStore(), restarted_flaky),
    "unreadable": Makers(lambda _: UnreadableStore(), lambda store, _: store.reopen()),
}


class Kind:
    """One kind of store: makes new, empty ones and restarts them; closes them all."""

    def __init__(self, name: str, path: Path) -> None:
        self._makers = MAKERS[name]
        self._path = path
        self._made: list[Store] = []

    def new(self) -> Store:
        self._made.append(self._makers.new(self._next_path()))
        return self._made[-1]

    def restarted(self, store: Store) -> Store:
        self._made.append(self._makers.restarted(store, self._next_path()))
        return self._made[-1]

    def close(self) -> None:
        for store in self._made:
            store.close()

    def _next_path(self) -> Path:
        return self._path / str(len(self._made))


@pytest.fixture(params=list(MAKERS))
def kind(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Kind]:
    made = Kind(request.param, tmp_path)
    yield made
    made.close()


@pytest.fixture
def make(kind: Kind) -> Make:
    """Makes new, empty stores of one kind."""
    return kind.new


def put(store: Store, **values: bytes) -> None:
    batch = Batch()
    for key, value in values.items():
        batch.put(key.encode(), value)
    store.write(batch, sync=True)


def test_reads_what_was_written(make: Make) -> None:
    store = make()
    assert store.get(b"a") is None
    put(store, a=b"1", b=b"")
    assert store.get(b"a") == b"1"
    assert store.get(b"b") == b""
    put(store, a=b"2")
    assert store.get(b"a") == b"2"


def test_scans_in_the_order_of_unsigned_bytes(make: Make) -> None:
    store = make()
    batch = Batch()
    for key in (b"\xff", b"\x00", b"\x7f", b"\x80", b"\x7f\x00", b""):
        batch.put(key + b"k", key)
    store.write(batch, sync=False)
    rows = list(store.scan(b"", END))
    assert [key for key, _ in rows] == sorted(key for key, _ in rows)
    assert len(rows) == 6
    assert [value for _, value in store.scan(b"\x7f", b"\x80k")] == [b"\x7f\x00", b"\x7f"]


def test_a_range_is_deleted_from_start_to_before_end(make: Make) -> None:
    store = make()
    put(store, a=b"1", b=b"2", c=b"3", d=b"4")
    batch = Batch()
    batch.delete_range(b"b", b"d")
    store.write(batch, sync=True)
    assert [key for key, _ in store.scan(b"", END)] == [b"a", b"d"]


def test_operations_of_a_batch_apply_in_order(make: Make) -> None:
    store = make()
    batch = Batch()
    batch.put(b"a", b"1")
    batch.delete_range(b"a", b"z")
    batch.put(b"b", b"2")
    batch.delete(b"b")
    batch.put(b"b", b"3")
    batch.delete(b"never there")
    store.write(batch, sync=True)
    assert list(store.scan(b"", END)) == [(b"b", b"3")]


def test_a_synced_write_and_all_before_it_are_there_after_a_restart(kind: Kind) -> None:
    store = kind.new()
    put(store, a=b"1", b=b"2", c=b"3")
    batch = Batch()
    batch.put(b"d", b"4")
    batch.delete(b"a")
    store.write(batch, sync=False)
    batch = Batch()
    batch.delete_range(b"b", b"c")
    store.write(batch, sync=False)
    put(store, e=b"5")
    expected = [(b"c", b"3"), (b"d", b"4"), (b"e", b"5")]
    for _ in range(2):
        store = kind.restarted(store)
        assert list(store.scan(b"", END)) == expected
        assert store.get(b"a") is None and store.get(b"d") == b"4"


def test_of_a_batch_all_or_nothing_is_there_after_a_restart(kind: Kind) -> None:
    store = kind.new()
    put(store, a=b"1")
    batch = Batch()
    batch.put(b"b", b"2")
    batch.delete(b"a")
    store.write(batch, sync=False)
    store = kind.restarted(store)
    assert list(store.scan(b"", END)) in ([(b"a", b"1")], [(b"b", b"2")])
    put(store, c=b"3")
    assert kind.restarted(store).get(b"c") == b"3"


def test_large_values_come_back(make: Make) -> None:
    store = make()
    value = bytes(range(256)) * 4_096
    put(store, large=value)
    assert store.get(b"large") == value
    assert store.disk_bytes() > 0


def test_a_closed_store_says_so(make: Make) -> None:
    store = make()
    store.close()
    store.close()
    with pytest.raises(ClosedError):
        store.get(b"a")
    with pytest.raises(ClosedError):
        put(store, a=b"1")


def test_two_threads_may_write_and_read_at_once(make: Make) -> None:
    store = make()
    failures: list[BaseException] = []

    def work(name: bytes) -> None:
        try:
            for at in range(100):
                batch = Batch()
                key = name + at.to_bytes(2, "big")
                batch.put(key, key * 50)
                store.write(batch, sync=at % 10 == 0)
                assert store.get(key) == key * 50
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(name,)) for name in (b"x", b"y")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert len(list(store.scan(b"", END))) == 200


keys = st.binary(min_size=1, max_size=3)
operations = st.lists(
    st.one_of(
        st.tuples(st.just(Batch.PUT), keys, st.binary(max_size=8)),
        st.tuples(st.just(Batch.DELETE), keys, st.just(b"")),
        st.tuples(st.just(Batch.DELETE_RANGE), keys, keys).filter(lambda each: each[1] <= each[2]),
    ),
    max_size=12,
)


@given(batches=st.lists(operations, max_size=6))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_batches_give_what_a_dictionary_gives(
    make: Make, batches: list[list[tuple[int, bytes, bytes]]]
) -> None:
    store = make()
    model: dict[bytes, bytes] = {}
    for each in batches:
        batch = Batch()
        for kind, key, value in each:
            if kind == Batch.PUT:
                batch.put(key, value)
                model[key] = value
            elif kind == Batch.DELETE:
                batch.delete(key)
                model.pop(key, None)
            else:
                batch.delete_range(key, value)
                model = {at: kept for at, kept in model.items() if not key <= at < value}
        store.write(batch, sync=False)
        assert list(store.scan(b"", END)) == sorted(model.items())
    store.close()
