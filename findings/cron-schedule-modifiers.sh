#!/usr/bin/env bash
# cron-schedule 6.0.0 (Node.js): the second Monday and the last Friday of a month become every Monday and Friday.
#
# Needs:   Node.js 20, npm.
# Does:    lists three dates from 2026-01-01 for weekdays 1#2 and 5L and for the day L.
# Expected: 12 January, 9 February, 9 March; 30 January, 27 February, 27 March; or an error for each, as for L alone.
# Seen:    5, 12 and 19 January; 2, 9 and 16 January: the modifier behind the number is dropped. L alone is an error.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
npm install --no-audit --no-fund --ignore-scripts --loglevel=error cron-schedule@6.0.0 >log
cat >dates.mjs <<'NODE'
import { parseCronExpression } from "cron-schedule";
for (const line of ["0 0 * * 1#2", "0 0 * * 5L", "0 0 L * *"]) {
  try {
    const dates = parseCronExpression(line).getNextDates(3, new Date("2026-01-01T00:00:00Z"));
    console.log(`${line}: ${dates.map((date) => date.toISOString().slice(5, 10)).join(" ")}`);
  } catch (error) {
    console.log(`${line}: an error`);
  }
}
NODE
seen=$(TZ=UTC node dates.mjs)
echo "$seen"
[ "$seen" = "0 0 * * 1#2: 01-05 01-12 01-19
0 0 * * 5L: 01-02 01-09 01-16
0 0 L * *: an error" ]
