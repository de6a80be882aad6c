"""What the index stores, as bytes: keys, envelopes, packed entries, blocks, the manifest, and upgrades.

The grammar is in docs/format.md. Whoever else writes these bytes does it with these modules, which know
entries, positions, names and the interface of a store, and nothing else of the index.
"""
