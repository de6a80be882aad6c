"""A client for programs: the messages that wait, over HTTP or the daemon's socket."""
