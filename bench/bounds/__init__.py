"""The bench ``bounds``: what bounds each path of the index, and how far off it is."""
