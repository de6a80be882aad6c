"""The Spark data source ``tidegate-backlog``: a topic's backlog as a table, in batches and as a stream."""

from tidegate.pipeline.job.parts import check_spark, installed

# Before any import here of parts that an older PySpark lacks.
check_spark(installed())
