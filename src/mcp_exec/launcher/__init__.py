"""The launcher: wire format, its server side, and its one-thread loop."""
