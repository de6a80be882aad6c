"""The bench ``libraries``: other libraries for the hot loop."""
