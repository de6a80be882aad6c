"""The protocol between broker and daemon: frames, messages and their bytes, and a client that asks."""
