"""The bench ``rebuild``: the time until an index holds a backlog new to it."""
