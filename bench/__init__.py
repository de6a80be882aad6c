"""Benches: Tidegate beside the other ways of delaying messages, measured in the same run.

``python -m bench list`` names them, ``python -m bench run NAME`` runs one. Rules that every bench keeps:

- the peers run in the same run, with the same data, in turn; no figure of a peer is written down anywhere;
- a result carries its command, machine, versions and git revision;
- what was measured is kept as samples (one a round), and only the report reduces them.
"""
