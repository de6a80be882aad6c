"""The benches, one a module; each has a ``BENCH`` that bench.registry lists."""
