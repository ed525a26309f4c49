"""mcp-exec: an MCP server that runs Python in a jail built anew for every call."""

__version__ = "0.1.0"
