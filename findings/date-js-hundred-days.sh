#!/usr/bin/env bash
# date.js 0.3.3 (Node.js): "in 99 days" is 99 days later, "in 100 days" tomorrow at one.
#
# Needs:   Node.js 20, npm.
# Does:    asks for three spans after 2026-01-31T10:15:30Z.
# Expected: 99 days, 100 days and 90 minutes later, or an error.
# Seen:    10 May for 99 days; 1 February at 01:00 for 100, and at 01:05 for 1.5 hours: parts of numbers become a time.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
npm install --no-audit --no-fund --ignore-scripts --loglevel=error date.js@0.3.3 >log
cat >spans.cjs <<'NODE'
const date = require("date.js");
const from = "2026-01-31T10:15:30Z";
for (const span of ["in 99 days", "in 100 days", "in 1.5 hours"]) {
  console.log(`${span}: ${date(span, new Date(from)).toISOString().slice(0, 19)}`);
}
NODE
seen=$(TZ=UTC node spans.cjs)
echo "$seen"
[ "$seen" = "in 99 days: 2026-05-10T10:15:30
in 100 days: 2026-02-01T01:00:00
in 1.5 hours: 2026-02-01T01:05:00" ]
