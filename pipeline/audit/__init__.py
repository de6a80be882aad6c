"""The delivery audit: what was sent held against what was received, at once or beside production."""
