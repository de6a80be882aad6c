"""Rebuild and verify on a real broker and a real daemon: lost entries are there again, and come once."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import psutil
import pytest
from pyspark.sql import SparkSession

from tests.support.cluster import RETAINED, Cluster, TrackerKind
from tests.support.inbox import Inbox
from tests.support.lane import Lane
from tests.support.pipeline.commands import SMALL_SPARK, TIDEGATE, TIMEOUT_S, Notes, environment, tidegate
from tests.support.s3_server import S3Server
from tests.support.waiting import wait_until
from tidegate.index import Entries, SubscriptionName, sort_entries
from tidegate.index.format import encode_block
from tidegate.pipeline.rebuild import job as rebuild
from tidegate.pipeline.rebuild import verify
from tidegate.pipeline.rebuild.options import RebuildOptions
from tidegate.plugin.daemon.report import SUBSCRIPTIONS_MAX
from tidegate.plugin.errors import UserError
from tidegate.plugin.wire.client import ask_socket
from tidegate.plugin.wire.session import DaemonSession

HOUR_MS = 3_600_000


class Unstarted(Notes):
    """A job's tools while Spark is not started, or still starting."""

    def __init__(self) -> None:
        super().__init__(None, spark_is_up=False)  # type: ignore[arg-type]


def arguments(cluster: Cluster, lane: Lane, command: str, *more: str | Path) -> list[str]:
    words = [
        command, f"persistent://{lane.topic}", "sub", "--admin-url", lane.admin.base_url,
        "--socket", cluster.daemon.socket_path, "--json", *SMALL_SPARK, *more,
    ]  # fmt: skip
    return [str(word) for word in words]


def job(
    module: Any, spark: SparkSession | Notes, cluster: Cluster, lane: Lane, work: Path | str, /, **more: Any
) -> tuple[dict[str, Any], int]:
    """A command's job, in this process."""
    options = RebuildOptions(
        topic=f"persistent://{lane.topic}",
        subscription="sub",
        admin_url=lane.admin.base_url,
        socket=str(cluster.daemon.socket_path),
        work=str(work),
    ).model_copy(update=more)
    context = spark if isinstance(spark, Notes) else Notes(spark)
    found: tuple[dict[str, Any], int] = module.run(context, options.model_dump(mode="json"))
    return found


def test_first_attach_to_a_backlog(cluster: Cluster, lane: Lane, tmp_path: Path) -> None:
    """No consumer has ever been there: the index is made before its first owner comes, and is believed."""
    lane.reserve()
    plain = lane.send_in(*[None] * 5)
    far = lane.send_in(*[HOUR_MS + number for number in range(2_000)])
    soon = lane.send_in(*[40_000] * 100)
    done = tidegate(*arguments(cluster, lane, "rebuild", "--entries-per-task", "500"), cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    result = json.loads(done.stdout)
    assert result["matched"]
    assert result["entries"] == result["added"] == 2_100
    assert result["entries_per_s"] == pytest.approx(2_100 / result["seconds"], rel=0.01)
    assert [one["name"] for one in result["stages"]] == ["plan", "read", "pack", "take in", "check"]
    assert not list(tmp_path.glob("run/rebuild/*")), "nothing is left of a job that is done"
    inbox = Inbox()
    lane.subscribe(inbox)
    lane.wait_delayed(2_000)
    inbox.wait_for(soon)
    lane.finish_partly(inbox, plain + soon, left=len(far))


@pytest.mark.parametrize("scheme", ["file", "s3"])
def test_parts_and_slice_files_at_a_url(
    cluster: Cluster,
    lane: Lane,
    s3: S3Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    scheme: str,
) -> None:
    """In a folder or a bucket that workers reach too; a finished job leaves nothing there."""
    s3.be_used(monkeypatch)
    work = f"file://{tmp_path}/work" if scheme == "file" else f"s3://{s3.bucket}/{lane.topic}"
    lane.reserve()
    lane.send_in(*[HOUR_MS + number for number in range(500)])
    found, code = job(rebuild, Unstarted(), cluster, lane, work, keep=True)
    assert (code, found["matched"], found["entries"]) == (0, True, 500)
    files, root = fsspec.core.url_to_fs(work)
    assert any("/slices/" in name for name in files.find(root)), "a job that keeps its files has some"
    found, code = job(rebuild, Unstarted(), cluster, lane, work)
    assert (code, found["matched"]) == (0, True)
    files.invalidate_cache()
    assert files.find(root) == []


@pytest.fixture
def attached(cluster: Cluster, lane: Lane) -> Lane:
    """A subscription with 3,000 far delayed messages held by its index, and a consumer."""
    inbox = Inbox()
    lane.subscribe(inbox)
    lane.send_in(*[HOUR_MS + number * 1_000 for number in range(3_000)])
    wait_until(lambda: cluster.held(lane.topic).get("sub") == 3_000, "all of it is held")
    return lane


def session(cluster: Cluster) -> DaemonSession:
    return DaemonSession(cluster.daemon.socket_path)


def held(cluster: Cluster, lane: Lane) -> Entries:
    with session(cluster) as asked:
        return Entries.concat(list(asked.entries(SubscriptionName(f"persistent://{lane.topic}", "sub"))))


def kinds(found: dict[str, Any]) -> tuple[int, ...]:
    return tuple(found[kind] for kind in ("missing", "extra", "wrong_time", "acknowledged_but_held"))


def test_verify_finds_each_kind_and_repairs_it(
    cluster: Cluster, attached: Lane, spark: SparkSession, tmp_path: Path
) -> None:
    name = SubscriptionName(f"persistent://{attached.topic}", "sub")
    good, code = job(verify, spark, cluster, attached, tmp_path / "work")
    assert (code, good["checked"], kinds(good)) == (0, 3_000, (0, 0, 0, 0))
    attached.disconnect()
    entries = held(cluster, attached)
    # In a full ledger: no message will ever have that place.
    extra = Entries(entries.deliver_at_ms[:3], entries.ledger_id[:3], entries.entry_id[:3] + 100_000)
    wrong = entries.part(10, 17)
    late = Entries(wrong.deliver_at_ms + 5_000, wrong.ledger_id, wrong.entry_id)
    with session(cluster) as broken:
        broken.take_in(name)
        with pytest.raises(UserError, match="another rebuild"):
            job(verify, spark, cluster, attached, tmp_path / "work", repair=True)
        # Nobody reads them again: there is no consumer.
        assert list(broken.put(name, [encode_block(entries.part(10, 40))], disown=True)) == [30]
        assert list(broken.put(name, [encode_block(sort_entries(one)) for one in (late, extra)])) == [7, 3]
    found, code = job(verify, spark, cluster, attached, tmp_path / "work")
    # Earlier entries are in the store with the right time: only one without another entry is wrong.
    assert (code, found["checked"], found["missing"], found["extra"]) == (1, 3_000, 23, 3)
    found, code = job(verify, spark, cluster, attached, tmp_path / "work", repair=True)
    assert (code, found["repaired"] > 0) == (1, True)
    good, code = job(verify, spark, cluster, attached, tmp_path / "work")
    assert (code, kinds(good)) == (0, (0, 0, 0, 0))


def test_a_wrong_time_is_found_and_put_right(
    cluster: Cluster, lane: Lane, spark: SparkSession, tmp_path: Path
) -> None:
    lane.reserve()
    lane.send_in(*[HOUR_MS + number for number in range(100)])
    job(rebuild, spark, cluster, lane, tmp_path / "work", dry_run=True)
    name = SubscriptionName(f"persistent://{lane.topic}", "sub")
    job(rebuild, spark, cluster, lane, tmp_path / "work")
    right = held(cluster, lane)
    cluster.daemon.stop()
    shutil.rmtree(cluster.daemon.data_dir)
    cluster.daemon.start()
    with session(cluster) as broken:
        broken.take_in(name)
        late = Entries(right.deliver_at_ms + 5_000, right.ledger_id, right.entry_id).part(0, 9)
        list(broken.put(name, [encode_block(one) for one in (late, right.part(9, 100))]))
    found, code = job(verify, spark, cluster, lane, tmp_path / "work", repair=True)
    assert (code, kinds(found), found["repaired"]) == (1, (0, 0, 9, 0), 9)
    assert job(verify, spark, cluster, lane, tmp_path / "work")[1] == 0


def test_one_index_of_more_than_a_status_tells_is_found(cluster: Cluster, lane: Lane, tmp_path: Path) -> None:
    lane.reserve()
    one = [encode_block(Entries(*np.array([[1 << 42], [5], [0]])))]
    with tempfile.TemporaryDirectory(prefix="tidegate-") as short:
        many = Cluster(TrackerKind.TIDEGATE, tmp_path / "many", Path(short) / "daemon.sock")
        try:
            many.daemon.start()
            with session(many) as making:
                making.take_in(SubscriptionName(f"persistent://{lane.topic}", "sub"))
                for number in range(SUBSCRIPTIONS_MAX):
                    name = SubscriptionName("persistent://public/default/many", str(number))
                    making.take_in(name)
                    assert list(making.put(name, one)) == [1]
                known = ask_socket(many.daemon.socket_path, {"what": "status"})
                assert (len(known["subscriptions"]), known["subscriptions_omitted"]) == (1_000, 1)
            found, code = job(verify, Unstarted(), many, lane, tmp_path / "work")
            assert (code, found["checked"]) == (0, 0)
            with pytest.raises(UserError, match=r"no index of .*:other"):
                lane.reserve("other")
                job(verify, Unstarted(), many, lane, tmp_path / "work", subscription="other")
        finally:
            many.end()


@pytest.mark.parametrize("module", [rebuild, verify])
@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"subscription": "nobody"}, "has no subscription 'nobody': it has sub"),
        ({"topic": "persistent://public/default/nothing"}, "there is no topic"),
        ({"admin_url": "http://127.0.0.1:1"}, "does not answer"),
        ({"socket": "/nonexistent/daemon.sock"}, "no daemon answers on /nonexistent/daemon.sock"),
        ({"token_file": "/nonexistent/token"}, "cannot read the token"),
        ({"work": "/proc/nowhere"}, "choose another --work"),
        ({"work": "nosuch://bucket/work"}, "--work nosuch://bucket/work"),
    ],
)
def test_what_cannot_be_done_is_said_and_leaves_nothing(
    cluster: Cluster, lane: Lane, spark: SparkSession, tmp_path: Path, module: Any, change: Any, said: str
) -> None:
    lane.reserve()
    with session(cluster) as making:
        # A verification needs an index.
        making.take_in(SubscriptionName(f"persistent://{lane.topic}", "sub"))
    with pytest.raises(UserError, match=re.escape(said)):
        job(module, spark, cluster, lane, tmp_path / "work", **change)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("module", [rebuild, verify])
def test_a_dry_run_only_says_what_would_be_read(
    cluster: Cluster, lane: Lane, tmp_path: Path, module: Any
) -> None:
    lane.reserve()
    lane.send_in(*[HOUR_MS] * 30)
    found, code = job(module, Unstarted(), cluster, lane, tmp_path / "work", dry_run=True)
    assert (code, found["dry_run"], found["entries"], found["tasks"]) == (0, True, 30, 1)
    assert found["subscriptions"] == [{"topic": f"persistent://{lane.topic}", "subscription": "sub"}]
    assert not list(tmp_path.iterdir())


STANDS_STILL = """
import pathlib, threading
from tidegate.pipeline.rebuild.files import Files
write = Files.write
def stands(self, name, data):
    write(self, name, data)
    if name == "manifest.json":
        pathlib.Path({told!r}).touch()
        threading.Event().wait()
Files.write = stands
"""
"""A job that has written the first part of its reading, and does nothing more."""


def test_a_killed_job_goes_on_and_a_second_one_is_refused(
    cluster: Cluster, make_lane: Callable[..., Lane], tmp_path: Path
) -> None:
    lane = make_lane(namespace=RETAINED)
    lane.reserve()
    lane.send_in(*[HOUR_MS + number for number in range(1_500)])
    work, stands = tmp_path / "work", tmp_path / "stands"
    (tmp_path / "sitecustomize.py").write_text(STANDS_STILL.format(told=str(stands)))
    more: list[str | Path] = ["--work", work, "--entries-per-task", "100"]
    first = subprocess.Popen(
        [*TIDEGATE, *arguments(cluster, lane, "rebuild", *more)],
        cwd=tmp_path, env=environment(PYTHONPATH=str(tmp_path)),
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        wait_until(
            lambda: stands.exists() or first.poll() is not None, "some of it is read", timeout_s=TIMEOUT_S
        )
        (process,) = psutil.Process(first.pid).children()
        with pytest.raises(UserError, match="another rebuild"):
            job(rebuild, Unstarted(), cluster, lane, tmp_path / "second")
        assert not (tmp_path / "second").exists(), "who is refused writes nothing"
        os.killpg(process.pid, signal.SIGKILL)
    finally:
        first.kill()
        first.wait()
    # Later messages are read, too.
    lane.send_in(*[HOUR_MS] * 50)
    wait_until(lambda: is_free(cluster, lane), "the killed job has let go")
    result, _ = job(rebuild, Unstarted(), cluster, lane, work)
    assert (result["matched"], result["entries"]) == (True, 1_550)
    read = next(one for one in result["stages"] if one["name"] == "read")
    assert read["reused_tasks"] > 0
    assert not list(work.iterdir()), "nothing is left of a job that is done"


def test_what_a_killed_verification_has_left_goes_with_the_next(
    cluster: Cluster, attached: Lane, tmp_path: Path
) -> None:
    work, stands = tmp_path / "work", tmp_path / "stands"
    (tmp_path / "sitecustomize.py").write_text(STANDS_STILL.format(told=str(stands)))
    killed = subprocess.Popen(
        [*TIDEGATE, *arguments(cluster, attached, "verify", "--work", work)],
        cwd=tmp_path, env=environment(PYTHONPATH=str(tmp_path)),
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        wait_until(lambda: stands.exists() or killed.poll() is not None, "it has read", timeout_s=TIMEOUT_S)
        (process,) = psutil.Process(killed.pid).children()
        # A working one is left alone.
        good, code = job(verify, Unstarted(), cluster, attached, work)
        assert (code, good["checked"]) == (0, 3_000)
        (left,) = work.iterdir()
        os.killpg(process.pid, signal.SIGKILL)
    finally:
        killed.kill()
        killed.wait()
    # A process without its first thread counts as dead while its others still end.
    wait_until(lambda: is_unlocked(left / "lock"), "everything that had the lock is gone")
    assert (left / "manifest.json").exists()
    notes = Unstarted()
    assert job(verify, notes, cluster, attached, work)[1] == 0
    assert f"{left} was left by a verification that was killed: it is removed" in notes.told
    assert not list(work.iterdir())


def is_unlocked(path: Path) -> bool:
    with path.open("rb+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def is_free(cluster: Cluster, lane: Lane) -> bool:
    with session(cluster) as asked:
        try:
            asked.take_in(SubscriptionName(f"persistent://{lane.topic}", "sub"))
        except UserError:
            return False
        return True
