"""A process that calls a failing tool of an MCP server, and sends its spans.

The provider of spans is one for a whole process, so the tests start this one.
"""

from __future__ import annotations

import asyncio
import os

import django

QUOTED = "Error executing tool fail"  # what the server answers


async def main() -> None:
    from llm.telemetry import tracing
    from project.monitoring import trace_export
    from tests.tools.mcp.servers import Running, running
    from tools.execute import execute
    from tools.mcp.client import build_tool, close_all, get_session
    from tools.runtime_tool import Context

    trace_export.start()
    assert tracing.spans is not None
    async with running(Running()) as server:
        spec = server.spec()
        definitions = await get_session(spec).tools()
        tools = {t.name: t for t in (build_tool(spec, each) for each in definitions)}
        call = {"name": "ours__fail", "call_id": "c1", "arguments": "{}"}
        async for outcome in execute([call], tools, Context()):
            print(outcome)
        await close_all()
        headers = [each["traceparent"] for each in server.seen.headers[-3:]]
        print(*headers, sep="\n")
    await trace_export.close()


if __name__ == "__main__":
    os.environ["DJANGO_SETTINGS_MODULE"] = "tests.settings"
    django.setup()
    asyncio.run(main())
