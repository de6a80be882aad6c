"""A pipeline command's work as a process of its own: started, watched, ended; and what ships to a cluster."""
