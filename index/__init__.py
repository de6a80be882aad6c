"""The time-sliced delay index: what is due when, for every subscription."""
