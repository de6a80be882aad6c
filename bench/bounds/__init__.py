"""The bench ``bounds``: the bound of each path of the index, and the distance from it."""
