"""Benches: Tidegate beside the other ways of delaying messages, measured in the same run.

``python -m bench list`` names them, ``python -m bench run NAME`` runs one. Rules for every bench:

- the peers run in the same run, with the same data, in turn; no peer's figure is written in the source;
- a result carries its command, machine, versions and git revision;
- measurements are kept as samples (one a round), and only the report reduces them.
"""
