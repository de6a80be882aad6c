"""Tidegate's peers, each the real thing."""
