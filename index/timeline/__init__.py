"""The due times of one subscription: staged, in runs, in slices."""
