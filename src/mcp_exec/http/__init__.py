"""[server] Streamable HTTP and SSE: what stands between a socket and the MCP session."""
