"""Blocks on disk: written by persists, merged by compactions, missing, corrupt, left over."""
