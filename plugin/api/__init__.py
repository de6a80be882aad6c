"""The HTTP interface ``/tidegate/v1``: its paths, its messages, and the course of a change."""
