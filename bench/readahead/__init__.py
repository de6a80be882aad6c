"""The bench ``readahead``: the time to index a backlog that no index has, and its effect on other traffic."""
