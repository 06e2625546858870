// One call through the gateway with the official TypeScript SDK: prints what the client saw, as one JSON line.
// sdk_client.mjs URL CALL
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const require = createRequire(process.env.PORTCULLIS_NODE_MODULES + "/");
const load = (name) => import(pathToFileURL(require.resolve(name)));
const { Client } = await load("@modelcontextprotocol/sdk/client/index.js");
const { StreamableHTTPClientTransport } = await load("@modelcontextprotocol/sdk/client/streamableHttp.js");

const [url, text] = process.argv.slice(2);
const call = JSON.parse(text);
const client = new Client({ name: "typescript-sdk", version: "1.0.0" });
await client.connect(new StreamableHTTPClientTransport(new URL(url)));
const { tools } = await client.listTools();
const result = await client.callTool({ name: call.tool, arguments: call.arguments });
const shown = result.content.filter((block) => block.type === "text").map((block) => block.text).join("\n");
console.log(JSON.stringify({ tools: tools.map((tool) => tool.name), text: shown, is_error: Boolean(result.isError) }));
await client.close();
