"""Which slice width fits a traffic: predicted from a trace, checked against the real index, and applied."""
