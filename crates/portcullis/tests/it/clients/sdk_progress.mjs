// A long call whose progress is heard, and another that is given up when it has begun, with the official TypeScript SDK:
// prints what the client heard, as one JSON line.
// sdk_progress.mjs URL TOOL
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const require = createRequire(process.env.PORTCULLIS_NODE_MODULES + "/");
const load = (name) => import(pathToFileURL(require.resolve(name)));
const { Client } = await load("@modelcontextprotocol/sdk/client/index.js");
const { StreamableHTTPClientTransport } = await load("@modelcontextprotocol/sdk/client/streamableHttp.js");

const [url, name] = process.argv.slice(2);
const client = new Client({ name: "typescript-sdk", version: "1.0.0" });
await client.connect(new StreamableHTTPClientTransport(new URL(url)));

const heard = [];
const finished = await client.callTool({ name, arguments: { duration: 1, steps: 4 } }, undefined, {
  onprogress: ({ progress, total }) => heard.push([progress, total]),
});

const enough = new AbortController();
let given_up = null;
try {
  await client.callTool({ name, arguments: { duration: 60, steps: 120 } }, undefined, {
    signal: enough.signal,
    // Not what the gateway says while it waits for an operator: the server itself must be at work.
    onprogress: ({ total }) => total === 120 && enough.abort("enough"),
  });
} catch (error) {
  given_up = String(error);
}
console.log(JSON.stringify({ progress: heard.filter(([, total]) => total === 4), text: finished.content[0].text, given_up }));
// The notification is on its way; closing the transport must not be what ends the call.
await new Promise((done) => setTimeout(done, 2000));
await client.close();
