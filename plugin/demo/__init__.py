"""The demo: delayed messages on a real broker through kill -9 of broker and daemon, and their audit."""
