"""The bench ``tuning``: one workload with many slice widths."""
