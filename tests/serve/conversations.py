"""Conversations with large tool results, in the forms of three APIs."""

from typing import Any

LOG = "".join(f"line {i} of the log\n" for i in range(600))


def conversation(logs: int) -> Any:
    found: list[Any] = [{"role": "user", "content": "What happened?"}]
    for n in range(logs):
        call = {"type": "tool_use", "id": f"call_{n}", "name": "read_log", "input": {"n": n}}
        result = {"type": "tool_result", "tool_use_id": f"call_{n}", "content": f"log {n}\n{LOG}"}
        found += [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
    return found


def chat_conversation(logs: int) -> Any:
    found: list[Any] = [{"role": "user", "content": "What happened?"}]
    for n in range(logs):
        function = {"name": "read_log", "arguments": "{}"}
        call = {"id": f"call_{n}", "type": "function", "function": function}
        found.append({"role": "assistant", "content": None, "tool_calls": [call]})
        found.append({"role": "tool", "tool_call_id": f"call_{n}", "content": f"log {n}\n{LOG}"})
    return found


def items(logs: int) -> Any:
    found: list[Any] = [{"role": "user", "content": "What happened?"}]
    for n in range(logs):
        found.append({"type": "function_call", "call_id": f"call_{n}", "name": "read_log", "arguments": "{}"})
        found.append({"type": "function_call_output", "call_id": f"call_{n}", "output": f"log {n}\n{LOG}"})
    return found


def contents(logs: int) -> Any:
    found: list[Any] = [{"role": "user", "parts": [{"text": "What happened?"}]}]
    for n in range(logs):
        call = {"name": "read_log", "args": {"n": n}}
        response = {"name": "read_log", "response": {"result": f"log {n}\n{LOG}"}}
        found.append({"role": "model", "parts": [{"functionCall": call}]})
        found.append({"role": "user", "parts": [{"functionResponse": response}]})
    return found
