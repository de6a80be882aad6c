"""Helpers of several rooms: times and names as text, streams of output, sockets, files."""
