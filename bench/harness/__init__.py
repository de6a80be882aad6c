"""Shared by all benches: running in rounds, samples, results and reports, workers, meters, workloads."""
