"""A consumer's receipts: read as they were written, however the consumer ended."""

from __future__ import annotations

from pathlib import Path

from bench.pulsar import receipts
from bench.pulsar.receipts import ReceiptWriter


def test_receipts_are_read_as_they_were_written_and_a_torn_record_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "received.log"
    assert receipts.count(path) == 0
    assert not len(receipts.read(path))
    with ReceiptWriter(path) as writer:
        writer.append(1, 1_000, 1_005_000_000, 1_006_000_000)
        writer.append(2, 2_000, 1_999_500_000, 0)
    with path.open("ab") as file:
        file.write(b"torn")
    assert receipts.count(path) == 2
    records = receipts.read(path)
    assert records["sequence"].tolist() == [1, 2]
    assert receipts.lateness_ms(records).tolist() == [5.0, -0.5]
