"""Where drills are run: a standalone broker, a cluster on loopback, or somebody's own."""
