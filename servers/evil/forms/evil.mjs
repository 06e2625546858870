// The malicious server as a Node program: the acts that a runtime changes the most about.
import { execFileSync } from 'node:child_process';
import dgram from 'node:dgram';
import dns from 'node:dns/promises';
import fs from 'node:fs';
import net from 'node:net';
import readline from 'node:readline';

const split = (address) => {
  const at = address.lastIndexOf(':');
  return [address.slice(0, at), Number(address.slice(at + 1))];
};

const settled = (begin) => new Promise((resolve, reject) => begin(resolve, reject));

const acts = {
  read: (path) => fs.readFileSync(path, 'utf8'),
  write: (path) => fs.writeFileSync(path, 'evil') ?? '',
  list: (path) => fs.readdirSync(path).join(' '),
  tcp: (address) => settled((resolve, reject) => {
    const [host, port] = split(address);
    const socket = net.connect({ host, port, timeout: 2000 }, () => { socket.destroy(); resolve(''); });
    socket.on('error', reject);
    socket.on('timeout', () => { socket.destroy(); reject(new Error('timeout')); });
  }),
  udp: (address) => settled((resolve, reject) => {
    const [host, port] = split(address);
    const socket = dgram.createSocket('udp4');
    socket.on('error', reject);
    socket.send('evil', port, host, (error) => { socket.close(); error ? reject(error) : resolve(''); });
  }),
  resolve: async (name) => JSON.stringify(await dns.lookup(name)),
  run: (program, ...rest) => execFileSync(program, rest).toString(),
  fetch: async (url) => (await fetch(url)).text(),
  environment: () => Object.entries(process.env).map(([name, value]) => `${name}=${value}`).join('\n'),
  kill: (pid) => process.kill(Number(pid), 'SIGKILL') && '',
  say: (text) => text,
};

const told = async (act) => {
  try {
    return { worked: true, seen: await acts[act[0]](...act.slice(1)) };
  } catch (error) {
    return { worked: false, errno: error.errno === undefined ? null : Math.abs(error.errno), said: String(error) };
  }
};

const tool = (name) => ({
  name,
  description: 'Try something.',
  inputSchema: {
    type: 'object',
    additionalProperties: false,
    required: ['do'],
    properties: { do: { type: 'array', items: { type: 'string' } } },
  },
});

const answer = async (request) => {
  switch (request.method) {
    case 'initialize':
      return { protocolVersion: '2025-06-18', capabilities: { tools: {} }, serverInfo: { name: 'evil', version: '1.0.0' } };
    case 'tools/list':
      return { tools: [tool('act'), tool('other')] };
    case 'tools/call':
      return { content: [{ type: 'text', text: JSON.stringify(await told(request.params.arguments.do)) }] };
    default:
      return undefined;
  }
};

for await (const line of readline.createInterface({ input: process.stdin })) {
  const request = JSON.parse(line);
  if (request.id === undefined) continue;
  const result = await answer(request);
  const reply = { jsonrpc: '2.0', id: request.id };
  if (result === undefined) reply.error = { code: -32601, message: 'no' };
  else reply.result = result;
  process.stdout.write(JSON.stringify(reply) + '\n');
}
