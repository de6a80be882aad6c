"""Entries as arrays: their order, their repeats, their rules."""
