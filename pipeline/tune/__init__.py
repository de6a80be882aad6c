"""The slice width that fits a traffic: predicted from a trace, checked on the real index, and applied."""
