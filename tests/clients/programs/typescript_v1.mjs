// @modelcontextprotocol/sdk
import { asked, load, main } from "./tour.mjs";

const sdk = (name) => load(`@modelcontextprotocol/sdk/client/${name}.js`);
const { Client } = sdk("index");

function transport() {
  if (asked.transport === "stdio") {
    const [command, ...args] = asked.command;
    return new (sdk("stdio").StdioClientTransport)({ command, args, env: asked.env });
  }
  const options = { requestInit: { headers: asked.headers } };
  const url = new URL(asked.url);
  if (asked.transport === "sse") return new (sdk("sse").SSEClientTransport)(url, options);
  return new (sdk("streamableHttp").StreamableHTTPClientTransport)(url, options);
}

const client = new Client({ name: "tests", version: "1" });
await main(client, transport(), (words, options) =>
  client.callTool({ name: "exec", arguments: words }, undefined, options),
);
