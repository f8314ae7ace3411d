"""Conversations as the text that a model continues, by the template of its tokenizer."""

from typing import Any

from tnn.serving.errors import ApiError

ADVICE = "put its chat_template.jinja into the folder of the model, or use /v1/completions"


def render_chat(tokenizer: Any, messages: list[dict[str, Any]]) -> str:
    """The text up to where the assistant's answer begins; an ApiError if there is no template, or it refuses.

    >>> from tnn.data import byte_tokenizer
    >>> from tnn.serving.chat import render_chat
    >>> tokenizer = byte_tokenizer()
    >>> tokenizer.chat_template = "{% for m in messages %}{{ m.role }}: {{ m.content }}\\n{% endfor %}assistant:"
    >>> render_chat(tokenizer, [{"role": "user", "content": "Hello"}])
    'user: Hello\\nassistant:'
    """
    from jinja2 import TemplateError

    if tokenizer.chat_template is None:
        raise ApiError(400, f"the tokenizer of this model has no chat template: {ADVICE}", code="no_chat_template")
    try:
        return str(tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True))
    except TemplateError as error:  # what a template raises for conversations that it has no form for
        raise ApiError(400, f"the chat template refuses these messages: {error}", param="messages") from None
