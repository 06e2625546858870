"""One call through the gateway with the official Python SDK: prints what the client saw, as one JSON line.

sdk_client.py auto|legacy http URL CALL
sdk_client.py auto|legacy stdio PORTCULLIS HOME CALL
"""

import asyncio
import json
import sys

from mcp import Client, StdioServerParameters


async def main() -> None:
    mode, transport, *rest = sys.argv[1:]
    call = json.loads(rest.pop())
    if transport == "http":
        target = rest[0]
    else:
        target = StdioServerParameters(command=rest[0], args=["--home", rest[1], "serve", "--stdio"])
    async with Client(target, mode=mode) as client:
        tools = [tool.name for tool in (await client.list_tools()).tools]
        result = await client.call_tool(call["tool"], call["arguments"])
        text = "\n".join(block.text for block in result.content if block.type == "text")
        print(json.dumps({"tools": tools, "text": text, "is_error": bool(result.is_error)}))


asyncio.run(main())
