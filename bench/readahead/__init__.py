"""The bench ``readahead``: how long until a backlog that no index has is indexed, and who feels it."""
