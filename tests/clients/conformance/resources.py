"""The suite's resources, prompts and completions."""

from __future__ import annotations

import json
from typing import Any

import mcp_types as types
from mcp.shared.exceptions import MCPError

from clients.conformance.dialogs import ask, elicitation
from clients.conformance.tools import PNG, embedded, picture

_TEMPLATE = "test://template/{id}/data"
_ARGUMENTS = {
    "test_simple_prompt": (),
    "test_prompt_with_arguments": ("arg1", "arg2"),
    "test_prompt_with_embedded_resource": ("resourceUri",),
    "test_prompt_with_image": (),
    "test_input_required_result_prompt": (),
}


async def list_resources(_context: Any, _params: Any) -> types.ListResourcesResult:
    kinds = {"static-text": "text/plain", "static-binary": "image/png", "watched-resource": "text/plain"}
    listed = [
        types.Resource(uri=f"test://{name}", name=name, description=f"The {name}.", mime_type=kind)
        for name, kind in kinds.items()
    ]
    return types.ListResourcesResult(resources=listed)


async def list_templates(_context: Any, _params: Any) -> types.ListResourceTemplatesResult:
    template = types.ResourceTemplate(
        uri_template=_TEMPLATE, name="template", description="Data by id.", mime_type="application/json"
    )
    return types.ListResourceTemplatesResult(resource_templates=[template])


async def read(_context: Any, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
    uri = str(params.uri)
    contents: types.TextResourceContents | types.BlobResourceContents
    if uri == "test://static-binary":
        contents = types.BlobResourceContents(uri=uri, mime_type="image/png", blob=PNG)
    elif uri.startswith("test://template/") and uri.endswith("/data"):
        number = uri.split("/")[3]
        data = {"id": number, "templateTest": True, "data": f"Data for ID: {number}"}
        contents = types.TextResourceContents(uri=uri, mime_type="application/json", text=json.dumps(data))
    elif uri in ("test://static-text", "test://watched-resource"):
        words = "This is the content of the static text resource."
        contents = types.TextResourceContents(uri=uri, mime_type="text/plain", text=words)
    else:
        raise MCPError(code=types.INVALID_PARAMS, message="Resource not found", data={"uri": uri})
    return types.ReadResourceResult(contents=[contents])


async def subscribe(_context: Any, _params: Any) -> types.EmptyResult:
    """Accepted; nothing ever changes here. Serves every request whose answer is empty."""
    return types.EmptyResult()


async def list_prompts(_context: Any, _params: Any) -> types.ListPromptsResult:
    return types.ListPromptsResult(
        prompts=[
            types.Prompt(
                name=name,
                description=f"For {name}.",
                arguments=[types.PromptArgument(name=one, required=True) for one in arguments],
            )
            for name, arguments in _ARGUMENTS.items()
        ]
    )


async def get_prompt(_context: Any, params: types.GetPromptRequestParams) -> Any:
    if params.name not in _ARGUMENTS:
        raise MCPError(code=types.INVALID_PARAMS, message=f"Unknown prompt: {params.name}")
    if params.name == "test_input_required_result_prompt" and not params.input_responses:
        return ask({"user_context": elicitation("What context should the prompt use?", "context")})
    contents = _contents(params.name, params.arguments or {})
    return types.GetPromptResult(messages=[types.PromptMessage(role="user", content=one) for one in contents])


def _contents(name: str, given: dict[str, str]) -> list[Any]:
    if name == "test_prompt_with_embedded_resource":
        resource = embedded(given["resourceUri"], "Embedded resource content for testing.")
        return [resource, _text("Please process the embedded resource above.")]
    if name == "test_prompt_with_image":
        return [picture(), _text("Please analyze the image above.")]
    if name == "test_prompt_with_arguments":
        return [_text(f"Prompt with arguments: arg1='{given['arg1']}', arg2='{given['arg2']}'")]
    return [_text("This is a simple prompt for testing.")]


def _text(words: str) -> types.TextContent:
    return types.TextContent(type="text", text=words)


async def complete(_context: Any, _params: Any) -> types.CompleteResult:
    return types.CompleteResult(completion=types.Completion(values=["paris", "park"], total=2, has_more=False))
