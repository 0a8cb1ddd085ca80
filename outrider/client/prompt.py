"""The three forms of a prompt, told apart and checked: text, token ids, a conversation."""

from collections.abc import Mapping, Sequence

from outrider.client.arguments import checked_ids, checked_text
from outrider.errors import InvalidArgumentError
from outrider.v1 import common_pb2, orchestrator_pb2

Messages = Sequence[Mapping[str, str]]
"""A conversation, oldest message first: mappings with a `role` and a `content`."""

Prompt = str | Sequence[int] | Messages
"""Raw text, token ids, or a conversation."""

ROLES = ("system", "user", "assistant")


def prompt_request(prompt: object) -> orchestrator_pb2.GenerateRequest:
    """A request that has `prompt` and nothing else yet."""
    if isinstance(prompt, (bytes, bytearray)) or not isinstance(prompt, (str, Sequence)):
        raise InvalidArgumentError(
            f"prompt is a {type(prompt).__name__}; give a str, a list of token ids or a list of "
            "messages"
        )
    if not prompt:
        raise InvalidArgumentError(
            "the prompt is empty; give text, at least one token id or at least one message"
        )
    if isinstance(prompt, str):
        return orchestrator_pb2.GenerateRequest(text=checked_text("prompt", prompt))
    if isinstance(prompt[0], Mapping):
        return messages_request(prompt)
    ids = common_pb2.TokenIds(ids=checked_ids("prompt", prompt))
    return orchestrator_pb2.GenerateRequest(token_ids=ids)


def messages_request(messages: object) -> orchestrator_pb2.GenerateRequest:
    """A request that has a conversation and nothing else yet."""
    if isinstance(messages, (str, bytes)) or not isinstance(messages, Sequence):
        raise InvalidArgumentError(
            f"messages is a {type(messages).__name__}; give a list of "
            "{'role': 'user', 'content': '...'}"
        )
    if not messages:
        raise InvalidArgumentError("the conversation is empty; give at least one message")
    chat = common_pb2.Chat(
        messages=[_message(f"messages[{index}]", item) for index, item in enumerate(messages)]
    )
    return orchestrator_pb2.GenerateRequest(chat=chat)


def _message(name: str, message: object) -> common_pb2.ChatMessage:
    if not isinstance(message, Mapping) or set(message) != {"role", "content"}:
        got = (
            f"has {sorted(map(str, message))}"
            if isinstance(message, Mapping)
            else f"is a {type(message).__name__}"
        )
        raise InvalidArgumentError(f"{name} {got}; give 'role' and 'content', and nothing else")
    if message["role"] not in ROLES:
        raise InvalidArgumentError(
            f"{name} has the role {message['role']!r}; give one of {', '.join(ROLES)}"
        )
    content = checked_text(f"the content of {name}", message["content"])
    return common_pb2.ChatMessage(role=message["role"], content=content)
