#!/usr/bin/env bash
# timestring 7.0.0 (Node.js): "-5m" is plus five minutes, and "1 hour -30 minutes" is 90 minutes.
#
# Needs:   Node.js 20, npm.
# Does:    turns three spans into seconds.
# Expected: -300 and 1800, or an error, as there is one for "5 fortnights".
# Seen:    300 and 5400: a minus is dropped, without a word.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
npm install --no-audit --no-fund --ignore-scripts --loglevel=error timestring@7.0.0 >log
cat >spans.cjs <<'NODE'
const timestring = require("timestring");
for (const span of ["-5m", "1 hour -30 minutes", "5 fortnights"]) {
  try {
    console.log(`${span}: ${timestring(span)}`);
  } catch (error) {
    console.log(`${span}: an error`);
  }
}
NODE
seen=$(node spans.cjs)
echo "$seen"
[ "$seen" = "-5m: 300
1 hour -30 minutes: 5400
5 fortnights: an error" ]
