#!/usr/bin/env bash
# @breejs/later 4.2.0 (Node.js): "every 90 minutes" runs every hour.
#
# Needs:   Node.js 20, npm.
# Does:    reads two texts, and lists the next four times of each from midnight.
# Expected: 00:00, 01:30, 03:00 and 04:30 for 90 minutes, or an error in the field for it.
# Seen:    00:00, 01:00, 02:00 and 03:00, with the error -1 for none: a step is one of minutes within an hour.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
npm install --no-audit --no-fund --ignore-scripts --loglevel=error @breejs/later@4.2.0 >log
cat >times.cjs <<'NODE'
const later = require("@breejs/later");
later.date.UTC();
for (const text of ["every 30 minutes", "every 90 minutes"]) {
  const parsed = later.parse.text(text);
  const times = later.schedule(parsed).next(4, new Date("2026-01-01T00:00:00Z"));
  console.log(`${text}: error ${parsed.error}, ${times.map((time) => time.toISOString().slice(11, 16)).join(" ")}`);
}
NODE
seen=$(node times.cjs)
echo "$seen"
[ "$seen" = "every 30 minutes: error -1, 00:00 00:30 01:00 01:30
every 90 minutes: error -1, 00:00 01:00 02:00 03:00" ]
