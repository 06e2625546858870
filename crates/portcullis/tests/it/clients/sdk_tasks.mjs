// A tool called as a task and followed to its end, with the official TypeScript SDK: prints what the client saw, as one
// JSON line.
// sdk_tasks.mjs URL TOOL
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const require = createRequire(process.env.PORTCULLIS_NODE_MODULES + "/");
const load = (name) => import(pathToFileURL(require.resolve(name)));
const { Client } = await load("@modelcontextprotocol/sdk/client/index.js");
const { StreamableHTTPClientTransport } = await load("@modelcontextprotocol/sdk/client/streamableHttp.js");

const [url, name] = process.argv.slice(2);
const client = new Client({ name: "sdk-tasks", version: "1" });
await client.connect(new StreamableHTTPClientTransport(new URL(url)));
await client.listTools();
const steps = [];
let text;
const call = { name, arguments: { seconds: 1 } };
for await (const step of client.experimental.tasks.callToolStream(call, undefined, { task: { ttl: 60000 } })) {
  steps.push(step.type);
  if (step.type === "result") text = step.result.content[0].text;
  if (step.type === "error") text = String(step.error);
}
const { tasks } = await client.experimental.tasks.listTasks();
console.log(JSON.stringify({ steps, text, listed: tasks.length }));
await client.close();
