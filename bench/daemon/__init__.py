"""The bench ``daemon``: a real ``tidegate serve`` through its socket."""
