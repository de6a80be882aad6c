#!/usr/bin/env bash
# heap-js 2.7.1 (Node.js): with a limit of three, pushing 10, 20, 30 and 5 drops the 20, and keeps the 30.
#
# Needs:   Node.js 20, npm.
# Does:    pushes four numbers into a smallest-first heap with the limit 3, in two orders, and pops all.
# Expected: the same three for both orders, the smallest or the largest; or, each time, the loss of the newest.
# Seen:    5, 10, 30 for one order, 5, 10, 20 for the other: the last place of the heap's array goes, any number's.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
npm install --no-audit --no-fund --ignore-scripts --loglevel=error heap-js@2.7.1 >log
cat >limit.cjs <<'NODE'
const { Heap } = require("heap-js");
for (const order of [[10, 20, 30, 5], [10, 30, 20, 5]]) {
  const heap = new Heap();
  heap.limit = 3;
  order.forEach((number) => heap.push(number));
  console.log(`pushed ${order.join(" ")}, kept ${[...heap].join(" ")}`);
}
NODE
seen=$(node limit.cjs)
echo "$seen"
[ "$seen" = "pushed 10 20 30 5, kept 5 10 30
pushed 10 30 20 5, kept 5 10 20" ]
