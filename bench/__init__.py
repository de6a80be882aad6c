"""Benches: Tidegate beside other ways of delaying messages, in the same run.

``python -m bench list`` names them, ``python -m bench run NAME`` runs one. Rules:

- peers run in turn with the same data; no peer's figure is in the source;
- a result has its command, machine, versions and git revision;
- results keep samples (one a round), and only the report reduces them.
"""
