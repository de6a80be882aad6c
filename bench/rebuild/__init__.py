"""The bench ``rebuild``: how long until an index holds a backlog that it has never seen."""
