"""The benchmark: the server side by side with bare Python and with other sandboxes, in one run. docs/performance.md"""
