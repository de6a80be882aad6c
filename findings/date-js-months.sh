#!/usr/bin/env bash
# date.js 0.3.3 (Node.js): "in 3 months" from 31 January is 28 April.
#
# Needs:   Node.js 20, npm.
# Does:    asks for one and for three months after 2026-01-31T10:15:30Z.
# Expected: 28 February, as that has no 31st, and 30 April.
# Seen:    28 February and 28 April: a month on the way shortens the day for good.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
npm install --no-audit --no-fund --ignore-scripts --loglevel=error date.js@0.3.3 >log
cat >months.cjs <<'NODE'
const date = require("date.js");
const from = "2026-01-31T10:15:30Z";
for (const span of ["in 1 month", "in 3 months"]) {
  console.log(`${span}: ${date(span, new Date(from)).toISOString().slice(0, 10)}`);
}
NODE
seen=$(TZ=UTC node months.cjs)
echo "$seen"
[ "$seen" = "in 1 month: 2026-02-28
in 3 months: 2026-04-28" ]
