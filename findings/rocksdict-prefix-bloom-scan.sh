#!/usr/bin/env bash
# rocksdict 0.3.29: with a prefix extractor and a bloom filter, a scan loses rows once they are flushed.
#
# Does:    writes keys of the prefixes a1 to b2 and lists all from b"aa" on, before and after flush().
# Expected: the same rows, flushed or not.
# Seen:    [b'b1x', b'b2x'] before the flush and [] after it: no key begins with the prefix "aa", so RocksDB does
#          not look further. ReadOptions.set_total_order_seek(True) brings them back.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check rocksdict==0.3.29
"$dir/venv/bin/python" - "$dir" <<'PYTHON'
import sys

from rocksdict import BlockBasedOptions, Options, Rdict, ReadOptions, SliceTransform

options = Options(raw_mode=True)
options.set_prefix_extractor(SliceTransform.create_fixed_prefix(2))
table = BlockBasedOptions()
table.set_bloom_filter(10, False)
options.set_block_based_table_factory(table)
db = Rdict(sys.argv[1] + "/db", options)
for key in (b"a1x", b"a2x", b"b1x", b"b2x"):
    db[key] = b""
before = list(db.keys(from_key=b"aa"))
db.flush()
after = list(db.keys(from_key=b"aa"))
total = ReadOptions()
total.set_total_order_seek(True)
ordered = list(db.keys(from_key=b"aa", read_opt=total))
print(f"before the flush {before}, after it {after}, in total order {ordered}")
sys.exit((before, after, ordered) != ([b"b1x", b"b2x"], [], [b"b1x", b"b2x"]))
PYTHON
