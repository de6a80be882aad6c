"""The kinds of faults: to processes, stored data, clocks, clients, and the place of a topic."""
