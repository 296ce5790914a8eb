"""An MCP server for tests of the client: ``python mcp_server.py [stdio | http PORT]``.

Its tools return text, structured content, images, errors, the environment and the process id; others
hang, or end the process.
"""

from __future__ import annotations

import base64
import io
import os
import subprocess
import sys
import time
from typing import Annotated, Any

from mcp.server.mcpserver import MCPServer
from mcp.types import (
    AudioContent,
    CallToolResult,
    ImageContent,
    TextContent,
    ToolAnnotations,
)
from pydantic import Field

server = MCPServer("test server")


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def add(a: Annotated[int, Field(ge=0, description="a summand")], b: int = 1) -> CallToolResult:
    """Add two numbers."""
    return CallToolResult(content=[TextContent(text=f"sum {a + b}")])


@server.tool()
def facts() -> CallToolResult:
    """Return structured content without text."""
    return CallToolResult(content=[], structured_content={"port": 8080})


@server.tool()
def picture(broken: bool = False, sides: int = 40) -> CallToolResult:
    """Return text, an image and a sound."""
    from PIL import Image

    file = io.BytesIO()
    Image.new("RGB", (sides, sides), (200, 30, 30)).save(file, "PNG")
    data = "bm8gaW1hZ2U=" if broken else base64.b64encode(file.getvalue()).decode()
    sound = AudioContent(data="aaaa", mime_type="audio/wav")
    image = ImageContent(data=data, mime_type="image/png")
    return CallToolResult(content=[TextContent(text="a red square"), image, sound])


@server.tool()
def fail() -> CallToolResult:
    """Fail."""
    return CallToolResult(content=[TextContent(text="the disk is full")], is_error=True)


@server.tool()
def hang() -> str:
    """Never answer."""
    time.sleep(3600)
    return "late"


@server.tool()
def die() -> str:
    """End the server."""
    os._exit(3)


@server.tool()
def environment() -> dict[str, Any]:
    """Return the names of the environment variables, and start a child process."""
    return {"names": sorted(os.environ), "pid": os.getpid()}


@server.tool()
def start_child() -> int:
    """Start a process with a process session of its own, and return its id."""
    return subprocess.Popen(["sleep", "3600"], start_new_session=True).pid


@server.tool(name="long.name." + "x" * 80)
def long_name() -> str:
    """Have a name that providers reject."""
    return "called"


if __name__ == "__main__":
    print("the server is here", file=sys.stderr, flush=True)
    if sys.argv[1:2] == ["http"]:
        server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[2]))
    else:
        server.run("stdio")
