"""The bench ``throughput``: the speed of publishing and delivering delayed messages."""
