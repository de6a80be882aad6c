"""Attaching a Pulsar home to Tidegate, and detaching it, without losing a byte of its conf files."""
