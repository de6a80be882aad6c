"""The bench ``cost``: an account of the processor time that broker and daemon spend on a message."""
