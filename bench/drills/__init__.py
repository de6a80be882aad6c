"""Rounds of drills: run in spare time, kept as counts and times, shown as tables."""
