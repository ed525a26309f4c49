"""The suite's tools that ask the client: by requests until 2025-11-25, by input_required results since 2026-07-28."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
from typing import Any

import mcp_types as types
from mcp.shared.exceptions import MCPError

from clients.conformance.tools import NOTHING, TOOLS, text, tool

__all__ = ["TOOLS", "ask", "elicitation"]

_KEY = os.urandom(32)
_MESSAGE = {"type": "object", "properties": {"message": {"type": "string"}}, "required": ["message"]}
_PROMPT = {"type": "object", "properties": {"prompt": {"type": "string"}}, "required": ["prompt"]}
_USER = {"username": {"type": "string"}, "email": {"type": "string"}}
_DEFAULTS = {
    "name": {"type": "string", "default": "John Doe"},
    "age": {"type": "integer", "default": 30},
    "score": {"type": "number", "default": 95.5},
    "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
    "verified": {"type": "boolean", "default": True},
}
_OPTIONS = {"type": "string", "enum": ["option1", "option2", "option3"]}
_TITLED = [{"const": f"value{number}", "title": f"{word} Option"} for number, word in enumerate(("First", "Second"), 1)]
_ENUMS = {
    "untitledSingle": _OPTIONS,
    "titledSingle": {"type": "string", "oneOf": _TITLED},
    "legacyEnum": {"type": "string", "enum": ["opt1", "opt2"], "enumNames": ["Option One", "Option Two"]},
    "untitledMulti": {"type": "array", "items": _OPTIONS},
    "titledMulti": {"type": "array", "items": {"anyOf": _TITLED}},
}


def form(properties: dict[str, Any], *required: str) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required)}


def elicitation(message: str, name: str, kind: str = "string") -> dict[str, Any]:
    schema = form({name: {"type": kind}}, name)
    return {"method": "elicitation/create", "params": {"message": message, "requestedSchema": schema}}


def sampling(words: str, tokens: int = 100) -> dict[str, Any]:
    message = {"role": "user", "content": {"type": "text", "text": words}}
    return {"method": "sampling/createMessage", "params": {"messages": [message], "maxTokens": tokens}}


ROOTS = {"method": "roots/list", "params": {}}
NAME = {"user_name": elicitation("What is your name?", "name")}


def ask(requests: dict[str, Any], state: str | None = None) -> types.InputRequiredResult:
    return types.InputRequiredResult.model_validate({"inputRequests": requests, "requestState": state})


def responses(params: Any) -> dict[str, Any]:
    given = params.input_responses or {}
    return {key: json.loads(value.model_dump_json(by_alias=True)) for key, value in given.items()}


def sign(state: str) -> str:
    return f"{state}.{hmac.new(_KEY, state.encode(), hashlib.sha256).hexdigest()}"


def check(signed: str | None) -> str:
    state = (signed or "").partition(".")[0]
    if not hmac.compare_digest(sign(state), signed or ""):
        raise MCPError(code=types.INVALID_PARAMS, message="requestState is not what this server gave")
    return state


@tool("test_sampling", _PROMPT)
async def sample(context: Any, params: Any) -> Any:
    message = types.SamplingMessage(
        role="user", content=types.TextContent(type="text", text=params.arguments["prompt"])
    )
    answer = await context.session.create_message([message], max_tokens=100, related_request_id=context.request_id)
    return text(f"LLM response: {answer.content.text}")


async def elicit(context: Any, message: str, schema: dict[str, Any]) -> str:
    answer = await context.session.elicit_form(message, schema, related_request_id=context.request_id)
    return f"action={answer.action}, content={json.dumps(answer.content)}"


@tool("test_elicitation", _MESSAGE)
async def elicit_user(context: Any, params: Any) -> Any:
    return text("User response: " + await elicit(context, params.arguments["message"], form(_USER, *_USER)))


@tool("test_elicitation_sep1034_defaults")
async def elicit_defaults(context: Any, _params: Any) -> Any:
    return text("Elicitation completed: " + await elicit(context, "Defaults", form(_DEFAULTS)))


@tool("test_elicitation_sep1330_enums")
async def elicit_enums(context: Any, _params: Any) -> Any:
    return text("Elicitation completed: " + await elicit(context, "Enums", form(_ENUMS)))


@tool("test_input_required_result_elicitation")
@tool("test_streaming_elicitation")
async def required_elicitation(_context: Any, params: Any) -> Any:
    content = responses(params).get("user_name", {}).get("content")
    return text(f"Hello, {content['name']}!") if content and "name" in content else ask(NAME)


@tool("test_input_required_result_sampling")
async def required_sampling(_context: Any, params: Any) -> Any:
    answer = responses(params).get("capital_question")
    return text(json.dumps(answer)) if answer else ask({"capital_question": sampling("What is the capital of France?")})


@tool("test_input_required_result_list_roots")
async def required_roots(_context: Any, params: Any) -> Any:
    answer = responses(params).get("client_roots")
    return text(json.dumps(answer)) if answer else ask({"client_roots": ROOTS})


@tool("test_input_required_result_request_state")
@tool("test_input_required_result_tampered_state")
async def required_state(_context: Any, params: Any) -> Any:
    if params.input_responses is None and params.request_state is None:
        return ask({"confirm": elicitation("Please confirm", "ok", "boolean")}, sign("confirm"))
    check(params.request_state)
    return text("state-ok")


@tool("test_input_required_result_multiple_inputs")
async def required_many(_context: Any, params: Any) -> Any:
    requests = {**NAME, "greeting": sampling("Generate a greeting", 50), "client_roots": ROOTS}
    if not responses(params):
        return ask(requests, sign("many"))
    check(params.request_state)
    left = {key: request for key, request in requests.items() if key not in responses(params)}
    return ask(left, params.request_state) if left else text("all is there")


@tool("test_input_required_result_multi_round")
async def required_rounds(_context: Any, params: Any) -> Any:
    if params.request_state is None:
        return ask({"step1": elicitation("Step 1: What is your name?", "name")}, sign("step1"))
    if check(params.request_state) == "step1":
        return ask({"step2": elicitation("Step 2: What is your favorite color?", "color")}, sign("step2"))
    return text("both steps are done")


@tool("test_input_required_result_capabilities", NOTHING)
async def required_capabilities(context: Any, _params: Any) -> Any:
    able = context.session.client_capabilities or types.ClientCapabilities()
    requests = {**({"name": NAME["user_name"]} if able.elicitation else {})}
    requests |= {"question": sampling("What is the capital of France?")} if able.sampling else {}
    return ask(requests, sign("capabilities"))
