"""Several rebuilds and verifications of one topic: at a time, one after another, and while it changes."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pulsar
import pytest

from tests.pipeline.rebuild.test_rebuild import HOUR_MS, Unstarted, job, kinds, session
from tests.support.cluster import RETAINED, Cluster
from tests.support.lane import Lane
from tests.support.waiting import wait_until
from tidegate.index import Entries, SubscriptionName
from tidegate.pipeline.errors import NoSubscriptionError, PipelineError
from tidegate.pipeline.rebuild import job as rebuild
from tidegate.pipeline.rebuild import verify
from tidegate.pipeline.rebuild.part_file import encode_part, read_span


class Meanwhile(Unstarted):
    """Does something once, when the job tells that it begins with something."""

    def __init__(self, words: str, what: Callable[[], None]) -> None:
        super().__init__()
        self._words, self._what = words, what

    def note(self, text: str) -> None:
        if text.startswith(self._words) and not any(one.startswith(self._words) for one in self.told):
            super().note(text)
            self._what()
        super().note(text)


@pytest.fixture
def kept(make_lane: Callable[..., Lane]) -> Lane:
    """300 far delayed messages for two subscriptions, of which ``sub`` has acknowledged some."""
    lane = make_lane(namespace=RETAINED)
    lane.reserve("sub", "other")
    lane.send_in(*[HOUR_MS + number for number in range(300)])
    # Such a consumer gets delayed messages at once, and no index hears of them.
    consumer = lane.client.subscribe(lane.topic, "sub", pulsar.ConsumerType.Exclusive)
    for number in range(10):
        message = consumer.receive(30_000)
        if number >= 2:
            consumer.acknowledge(message)
    consumer.close()
    wait_until(lambda: lane.stats().backlog == 292, "they are acknowledged")
    return lane


def name_of(lane: Lane, subscription: str) -> SubscriptionName:
    return SubscriptionName(f"persistent://{lane.topic}", subscription)


def test_jobs_of_two_subscriptions_have_a_folder_each(cluster: Cluster, kept: Lane, tmp_path: Path) -> None:
    """Rows read for one of them lack the messages that it had acknowledged."""
    lane, work = kept, tmp_path / "work"
    for subscription, entries in (("sub", 292), ("other", 300)):
        found, code = job(rebuild, Unstarted(), cluster, lane, work, subscription=subscription, keep=True)
        assert (code, found["entries"], found["matched"]) == (0, entries, True)
        with session(cluster) as asked:
            assert len(asked.positions(name_of(lane, subscription))[0]) == entries


def test_a_cursor_that_was_set_back_is_read_anew(cluster: Cluster, kept: Lane, tmp_path: Path) -> None:
    """A former plan has left out what was acknowledged then."""
    lane, work = kept, tmp_path / "work"
    assert job(rebuild, Unstarted(), cluster, lane, work, keep=True)[0]["entries"] == 292
    ledger_id = int(lane.admin.internal_stats(lane.topic)["ledgers"][0]["ledgerId"])
    lane.admin.reset_to_position(lane.topic, "sub", (ledger_id, 0))
    wait_until(lambda: lane.stats().backlog == 300, "the cursor is set back")
    found, code = job(rebuild, Unstarted(), cluster, lane, work)
    assert (code, found["entries"], found["matched"]) == (0, 300, True)


def reused_tasks(found: dict[str, Any]) -> int:
    (stage,) = (one for one in found["stages"] if one["name"] == "read")
    return int(stage["reused_tasks"])


def test_what_was_read_of_another_topic_of_that_name_is_not_gone_on_with(
    cluster: Cluster, kept: Lane, tmp_path: Path
) -> None:
    """Of a cluster that was made anew or put back: positions are the same, their times others."""
    lane, work = kept, tmp_path / "work"

    def run() -> dict[str, Any]:
        found, code = job(rebuild, Unstarted(), cluster, lane, work, keep=True, entries_per_task=100)
        assert (code, found["entries"], found["matched"]) == (0, 292, True)
        return found

    assert reused_tasks(run()) == 0
    assert reused_tasks(run()) == 3
    parts = {path: path.read_bytes() for path in work.glob("*/read/*")}
    for path, data in parts.items():
        ours = read_span(io.BytesIO(data), path.name)
        path.write_bytes(encode_part(Entries(ours.deliver_at_ms + HOUR_MS, ours.ledger_id, ours.entry_id)))
    (manifest,) = work.glob("*/manifest.json")
    theirs = json.loads(manifest.read_text())
    for *_, quantiles in theirs["read"].values():
        quantiles[:] = [at + HOUR_MS for at in quantiles]
    manifest.write_text(json.dumps(theirs))
    assert reused_tasks(run()) == 0
    assert {path: path.read_bytes() for path in work.glob("*/read/*")} == parts


def test_a_part_that_a_power_cut_has_emptied_is_read_again(
    cluster: Cluster, kept: Lane, tmp_path: Path
) -> None:
    lane, work = kept, tmp_path / "work"
    job(rebuild, Unstarted(), cluster, lane, work, keep=True, entries_per_task=100)
    (first, *_) = sorted(work.glob("*/read/*"))
    first.write_bytes(b"")
    with pytest.raises(PipelineError, match=r"is damaged: .*; start the job again"):
        job(rebuild, Unstarted(), cluster, lane, work, entries_per_task=100)
    found, code = job(rebuild, Unstarted(), cluster, lane, work, entries_per_task=100)
    assert (code, found["entries"], found["matched"]) == (0, 292, True)


def test_verifications_at_a_time_do_not_disturb_each_other(
    cluster: Cluster, kept: Lane, tmp_path: Path
) -> None:
    lane, work = kept, tmp_path / "work"
    job(rebuild, Unstarted(), cluster, lane, work)
    codes = []

    def second() -> None:
        codes.append(job(verify, Unstarted(), cluster, lane, work)[1])

    found, code = job(verify, Meanwhile("comparing", second), cluster, lane, work)
    assert (code, codes, kinds(found)) == (0, [0], (0, 0, 0, 0))
    assert not list(work.iterdir()), "nothing is left of one that is done"


def test_a_subscription_that_is_deleted_meanwhile(cluster: Cluster, kept: Lane, tmp_path: Path) -> None:
    """Nor is the cursor of a reader that is there just now a subscription."""
    lane = kept
    lane.reserve("gone")
    lane.client.create_reader(lane.topic, pulsar.MessageId.earliest)

    def delete() -> None:
        lane.admin.delete_subscription(lane.topic, "gone")

    told = {"topic": f"persistent://{lane.topic}", "subscription": "gone"}
    context = Meanwhile("packing", delete)
    found, code = job(rebuild, context, cluster, lane, tmp_path / "work", subscription="*")
    assert (code, found["matched"], found["left_out"]) == (0, True, [told])
    assert {one["subscription"]: one["entries"] for one in found["subscriptions"]} == {
        "other": 300,
        "sub": 292,
    }
    lane.reserve("gone")
    with pytest.raises(NoSubscriptionError, match="has no subscription 'gone': it has other, sub"):
        job(rebuild, Meanwhile("packing", delete), cluster, lane, tmp_path / "work", subscription="gone")


def test_what_the_daemon_has_no_index_of(cluster: Cluster, kept: Lane, tmp_path: Path) -> None:
    """Of whatever is there some may have none, as of subscriptions that delay nothing."""
    lane, work = kept, tmp_path / "work"
    with pytest.raises(PipelineError, match=r"has no index of persistent://.*:other"):
        job(verify, Unstarted(), cluster, lane, work, subscription="other")
    job(rebuild, Unstarted(), cluster, lane, work)
    found, code = job(verify, Unstarted(), cluster, lane, work, subscription="*")
    assert (code, [one["subscription"] for one in found["left_out"]]) == (0, ["other"])
    assert [one["subscription"] for one in found["subscriptions"]] == ["sub"]
