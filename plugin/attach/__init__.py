"""Attaching and detaching a Pulsar home, without losing a byte of its conf files."""
