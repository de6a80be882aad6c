"""The index log: what a subscription's index says, where another owner can open it.

The grammar of what it writes is in docs/format.md.
"""
