"""The kinds of faults: to processes, to what is stored, to clocks, to clients, and to where a topic is."""
