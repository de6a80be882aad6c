"""A pipeline command's work as its own process, started, watched and ended; its package for a cluster."""
