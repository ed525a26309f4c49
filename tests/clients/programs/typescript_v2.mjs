// @modelcontextprotocol/client
import { asked, load, main } from "./tour.mjs";

const { Client, SSEClientTransport, StreamableHTTPClientTransport } = load("@modelcontextprotocol/client");
const { StdioClientTransport } = load("@modelcontextprotocol/client/stdio");

function transport() {
  if (asked.transport === "stdio") {
    const [command, ...args] = asked.command;
    return new StdioClientTransport({ command, args, env: asked.env });
  }
  const kind = asked.transport === "sse" ? SSEClientTransport : StreamableHTTPClientTransport;
  return new kind(new URL(asked.url), { requestInit: { headers: asked.headers } });
}

const mode = asked.era === "2026-07-28" ? { pin: asked.era } : asked.era;
const client = new Client({ name: "tests", version: "1" }, { versionNegotiation: { mode } });
await main(client, transport(), (words, options) => client.callTool({ name: "exec", arguments: words }, options));
