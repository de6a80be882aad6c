"""Seeing and cancelling messages that wait, beside Redis and PostgreSQL."""
