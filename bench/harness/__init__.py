"""What every bench uses: running in rounds, samples, results and reports, workers, meters, workloads."""
