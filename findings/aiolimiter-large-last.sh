#!/usr/bin/env bash
# aiolimiter 1.3.0: a large acquire() waits until all smaller ones are served, however late they came.
#
# Does:    empties a limiter of 5 a quarter second; then one task asks for 4, and six after it for 1, four of them twice.
# Expected: the order of the calls, or at least the 4 before calls that come while it waits already.
# Seen:    all ten calls for 1 come first: each takes room that the 4 waits for.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check aiolimiter==1.3.0
"$dir/venv/bin/python" - <<'PYTHON'
import asyncio
import sys

from aiolimiter import AsyncLimiter


async def main() -> list[str]:
    limiter, order = AsyncLimiter(5, 0.25), []

    async def take(name: str, amount: int, then: int = 0) -> None:
        await limiter.acquire(amount)
        order.append(name)
        if then:
            await take(f"{name}+", amount, then - 1)

    await limiter.acquire(5)
    first = asyncio.create_task(take("four", 4))
    await asyncio.sleep(0)
    others = [asyncio.create_task(take(f"one-{number}", 1, then=number < 4)) for number in range(6)]
    await asyncio.gather(first, *others)
    return order


order = asyncio.run(main())
print("order:", " ".join(order))
sys.exit(order[-1] != "four" or len(order) != 11)
PYTHON
