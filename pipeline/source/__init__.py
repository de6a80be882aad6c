"""The Spark data source ``tidegate-backlog``: a topic's backlog as a table, in batches and as a stream."""
