"""Rounds of drills: run while there is time, kept as counts and times, shown as tables."""
