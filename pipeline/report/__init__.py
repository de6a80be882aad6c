"""Reports for people: one HTML file that needs nothing else, with its plots in it."""
