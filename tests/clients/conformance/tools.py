"""The suite's tools that answer by themselves: what they must be named and return is what the suite says."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable
from typing import Any

import mcp_types as types
from mcp.shared.exceptions import MCPError

Handler = Callable[[Any, types.CallToolRequestParams], Awaitable[Any]]

NOTHING: dict[str, Any] = {"type": "object", "properties": {}}
TOOLS: dict[str, tuple[dict[str, Any], Handler]] = {}
#: One red pixel; one silent sample
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
WAV = base64.b64encode(
    b"RIFF\x25\0\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0\x40\x1f\0\0\x40\x1f\0\0\x01\0\x08\0data\x01\0\0\0\x80"
).decode()
ADDRESS = {
    "$anchor": "addressDef",
    "type": "object",
    "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
}
SCHEMA_2020_12 = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {"address": ADDRESS},
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}
REGION = {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}


def tool(name: str, schema: dict[str, Any] = NOTHING) -> Callable[[Handler], Handler]:
    def register(handler: Handler) -> Handler:
        TOOLS[name] = (schema, handler)
        return handler

    return register


def text(words: str, *, is_error: bool = False) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(type="text", text=words)], is_error=is_error)


def embedded(uri: str, words: str, kind: str = "text/plain") -> types.EmbeddedResource:
    return types.EmbeddedResource(
        type="resource", resource=types.TextResourceContents(uri=uri, mime_type=kind, text=words)
    )


def picture() -> types.ImageContent:
    return types.ImageContent(type="image", data=PNG, mime_type="image/png")


@tool("test_simple_text")
async def simple_text(_context: Any, _params: Any) -> Any:
    return text("This is a simple text response for testing.")


@tool("test_image_content")
async def image(_context: Any, _params: Any) -> Any:
    return types.CallToolResult(content=[picture()])


@tool("test_audio_content")
async def audio(_context: Any, _params: Any) -> Any:
    return types.CallToolResult(content=[types.AudioContent(type="audio", data=WAV, mime_type="audio/wav")])


@tool("test_embedded_resource")
async def embedded_resource(_context: Any, _params: Any) -> Any:
    return types.CallToolResult(content=[embedded("test://embedded-resource", "This is an embedded resource content.")])


@tool("test_multiple_content_types")
async def mixed(_context: Any, _params: Any) -> Any:
    resource = embedded("test://mixed-content-resource", '{"test":"data","value":123}', "application/json")
    words = types.TextContent(type="text", text="Multiple content types test:")
    return types.CallToolResult(content=[words, picture(), resource])


@tool("test_error_handling")
async def error(_context: Any, _params: Any) -> Any:
    return text("This tool intentionally returns an error for testing", is_error=True)


@tool("test_tool_with_logging")
@tool("test_logging_tool")
async def logging(context: Any, _params: Any) -> Any:
    for words in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        await context.session.send_log_message(level="info", data=words, related_request_id=context.request_id)
        await asyncio.sleep(0.05)
    return text("logged")


@tool("test_tool_with_progress")
async def progress(context: Any, _params: Any) -> Any:
    for done in (0, 50, 100):
        await context.session.report_progress(done, 100)
        await asyncio.sleep(0.05)
    return text("done")


@tool("test_missing_capability")
async def missing_capability(context: Any, _params: Any) -> Any:
    needed = types.ClientCapabilities(sampling=types.SamplingCapability())
    if not context.session.check_client_capability(needed):
        raise MCPError(
            code=types.MISSING_REQUIRED_CLIENT_CAPABILITY,
            message="sampling is needed",
            data={"requiredCapabilities": {"sampling": {}}},
        )
    return text("sampling is there")


@tool("test_reconnection")
async def reconnection(context: Any, _params: Any) -> Any:
    if context.close_sse_stream is not None:
        await context.close_sse_stream()
    await asyncio.sleep(0.1)
    return text("reconnected")


@tool("json_schema_2020_12_tool", SCHEMA_2020_12)
@tool("test_x_mcp_header", REGION)
async def nothing(_context: Any, _params: Any) -> Any:
    return text("ok")
