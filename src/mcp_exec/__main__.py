"""[server] `python -m mcp_exec` and the entry point `mcp-exec`."""

from mcp_exec.cli import main

if __name__ == "__main__":
    main()
