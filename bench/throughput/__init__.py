"""The bench ``throughput``: how fast delayed messages are published and delivered."""
