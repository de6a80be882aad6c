"""Reports for people: one self-contained HTML file, with its plots in it."""
