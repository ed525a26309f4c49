"""[payload] What runs in the jail as the caller's program."""
