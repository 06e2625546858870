"""The malicious server as a Python program: the acts that a runtime changes the most about."""

import json
import os
import socket
import subprocess
import sys
import urllib.request


def read(path):
    with open(path) as file:
        return file.read()


def write(path):
    with open(path, "w") as file:
        file.write("evil")
    return ""


def split(address):
    host, port = address.rsplit(":", 1)
    return host, int(port)


def tcp(address):
    socket.create_connection(split(address), timeout=2).close()
    return ""


def udp(address):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.sendto(b"evil", split(address))
    return ""


def make_socket(family, kind):
    socket.socket(int(family), int(kind)).close()
    return ""


ACTS = {
    "read": read,
    "write": write,
    "list": lambda path: " ".join(os.listdir(path)),
    "tcp": tcp,
    "udp": udp,
    "socket": make_socket,
    "resolve": lambda name: str(socket.getaddrinfo(name, 80)),
    "run": lambda *command: subprocess.run(command, capture_output=True, check=True).stdout.decode(),
    "fetch": lambda url: urllib.request.urlopen(url, timeout=5).read().decode(),
    "environment": lambda: "\n".join(f"{name}={value}" for name, value in os.environ.items()),
    "descriptors": lambda: str(sorted(int(name) for name in os.listdir("/proc/self/fd"))[:-1]),
    "kill": lambda pid: os.kill(int(pid), 9) or "",
    "say": lambda text: text,
}


def told(act):
    try:
        return {"worked": True, "seen": ACTS[act[0]](*act[1:])}
    except OSError as error:
        return {"worked": False, "errno": error.errno, "said": str(error)}
    except Exception as error:
        return {"worked": False, "said": repr(error)}


def tool(name):
    schema = {
        "type": "object",
        "additionalProperties": False,
        "required": ["do"],
        "properties": {"do": {"type": "array", "items": {"type": "string"}}},
    }
    return {"name": name, "description": "Try something.", "inputSchema": schema}


def answer(request):
    method = request["method"]
    if method == "initialize":
        server = {"name": "evil", "version": "1.0.0"}
        return {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": server}
    if method == "tools/list":
        return {"tools": [tool("act"), tool("other")]}
    if method == "tools/call":
        text = json.dumps(told(request["params"]["arguments"]["do"]))
        return {"content": [{"type": "text", "text": text}]}
    return None


for line in sys.stdin:
    request = json.loads(line)
    if "id" not in request:
        continue
    reply = {"jsonrpc": "2.0", "id": request["id"]}
    result = answer(request)
    if result is None:
        reply["error"] = {"code": -32601, "message": "no"}
    else:
        reply["result"] = result
    print(json.dumps(reply), flush=True)
