#!/usr/bin/env bash
# human-interval 2.0.1 (Node.js): "an hour and 30 minutes" is 30 minutes, and "a day" nothing.
#
# Needs:   Node.js 20, npm.
# Does:    turns six spans into minutes.
# Expected: 60, 60, 90, 1440, 30 and 5, or NaN, as for "5 mins": the README takes "minute" and "one minute" alike.
# Seen:    60 for "hour" and "one hour"; a span with a or an counts as 0, and is left out of a sum.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
npm install --no-audit --no-fund --ignore-scripts --loglevel=error human-interval@2.0.1 >log
cat >spans.cjs <<'NODE'
const humanInterval = require("human-interval");
for (const span of ["hour", "one hour", "an hour and 30 minutes", "a day", "half an hour", "5 mins"]) {
  console.log(`${span}: ${humanInterval(span) / 60000}`);
}
NODE
seen=$(node spans.cjs)
echo "$seen"
[ "$seen" = "hour: 60
one hour: 60
an hour and 30 minutes: 30
a day: 0
half an hour: 0
5 mins: NaN" ]
