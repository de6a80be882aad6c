"""The others: what Tidegate is measured against, each the real thing."""
