"""Servers on this machine for demo, tests and benches: Pulsar's distribution, a broker, a daemon."""
