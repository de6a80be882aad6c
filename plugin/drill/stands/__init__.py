"""The places for drills: a standalone broker, a cluster on loopback, or the user's own."""
