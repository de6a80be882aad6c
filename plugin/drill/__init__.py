"""Drills: a fault done to a real broker and its daemon while delayed messages are due, and what became of
them.
"""
