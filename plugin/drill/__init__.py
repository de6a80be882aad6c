"""Drills: a fault done to a real broker and its daemon, and the fate of the messages due meanwhile."""
