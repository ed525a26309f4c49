"""[server] cgroup v2: a subtree of our own, one leaf per run. Nobody below the server imports this."""
