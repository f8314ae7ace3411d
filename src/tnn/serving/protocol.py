"""The bodies of requests and answers: OpenAI's, and `session`, `top_k` and /v1/predict beside them.

A field that is not here is refused by name. Fields of OpenAI that change nothing here (`user`, `metadata`, ...) are
taken and have no effect; those that would change the text are taken with their neutral value only.
"""

from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from tnn.serving.sampling import LOWEST_TEMPERATURE

MAX_STOPS = 16
MAX_TOP = 20  # alternatives with their log-probabilities
COMPLETION_TOKENS = 16  # OpenAI's default


def _check_unicode(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"character {error.start} is half of one, and no Unicode") from None
    return text


def _check_temperature(value: float) -> float:
    if 0 < value < LOWEST_TEMPERATURE:
        raise ValueError(f"must be 0, or at least {LOWEST_TEMPERATURE}")
    return value


Text = Annotated[str, AfterValidator(_check_unicode)]
StopText = Annotated[str, Field(min_length=1), AfterValidator(_check_unicode)]
TokenIds = Annotated[list[Annotated[int, Field(ge=0, lt=2**31, strict=True)]], Field(min_length=1)]
Item = TypeVar("Item")
Several = Annotated[list[Item], Field(min_length=1)]
Pair = Annotated[list[Text], Field(min_length=2, max_length=2)]
Zero = Annotated[float, Field(ge=0, le=0)]
Object = dict[str, Any]


class Body(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class StreamOptions(Body):
    include_usage: bool | None = False
    include_obfuscation: bool | None = Field(None, description="Has no effect.")


class GenerationBody(Body):
    """What both endpoints share."""

    model: Text | None = Field(None, description="The name of the model that is served; it may be left out.")
    temperature: Annotated[float, Field(ge=0, le=2), AfterValidator(_check_temperature)] | None = Field(
        1.0, description="0: always the most likely token; otherwise at least 1e-6."
    )
    top_p: Annotated[float, Field(gt=0, le=1)] | None = 1.0
    top_k: Annotated[int, Field(ge=1, lt=2**31)] | None = Field(
        None, description="Sample from this many of the most likely tokens."
    )
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] | None = Field(
        None, description="The same request with the same seed gives the same text, whatever else is running."
    )
    n: Annotated[int, Field(ge=1, le=128)] | None = 1
    stop: StopText | Annotated[list[StopText], Field(max_length=MAX_STOPS)] | None = Field(
        None, description="The text ends before the first of these."
    )
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    session: Annotated[str, Field(min_length=1, max_length=100), AfterValidator(_check_unicode)] | None = Field(
        None,
        description='"new", or the `session` of an earlier answer: the text goes on from there; send what is new.',
    )
    user: Any = Field(None, description="Has no effect.")
    metadata: Any = Field(None, description="Has no effect.")
    store: Any = Field(None, description="Has no effect.")
    service_tier: Any = Field(None, description="Has no effect.")
    safety_identifier: Any = Field(None, description="Has no effect.")
    prompt_cache_key: Any = Field(None, description="Has no effect: every repeated beginning is recognised.")
    presence_penalty: Zero | None = 0
    frequency_penalty: Zero | None = 0
    logit_bias: Annotated[dict[str, float], Field(max_length=0)] | None = None

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        if self.stream_options is not None and not self.stream:
            raise ValueError("stream_options needs stream to be true")
        if self.session is not None and self.samples > 1:
            raise ValueError(f"a session holds one text: n must be 1 with it, and it is {self.n}")
        return self

    @property
    def stops(self) -> tuple[str, ...]:
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())

    @property
    def samples(self) -> int:
        return self.n or 1

    @property
    def includes_usage(self) -> bool:
        return self.stream_options is not None and bool(self.stream_options.include_usage)


class CompletionBody(GenerationBody):
    """POST /v1/completions."""

    prompt: Text | TokenIds | Several[Text] | Several[TokenIds]
    max_tokens: Annotated[int, Field(ge=1, lt=2**31)] | None = COMPLETION_TOKENS
    logprobs: Annotated[int, Field(ge=0, le=MAX_TOP)] | None = None
    best_of: Annotated[int, Field(ge=1, le=1)] | None = None
    echo: Literal[False] | None = False
    suffix: Literal[""] | None = None

    @property
    def prompts(self) -> list[str | list[int]]:
        prompt: Any = self.prompt
        one = isinstance(prompt, str) or isinstance(prompt[0], int)
        return [prompt] if one else prompt

    @property
    def alternatives(self) -> int | None:
        """How many tokens to score at each place; None: none, not even the chosen one."""
        return self.logprobs


class TextPart(Body):
    type: Literal["text"]
    text: Text


class Message(Body):
    role: Literal["system", "developer", "user", "assistant"]
    content: Text | Several[TextPart]
    name: Text | None = None

    def plain(self) -> dict[str, Any]:
        """As chat templates take it."""
        content = self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)
        named = {} if self.name is None else {"name": self.name}
        return {"role": self.role, "content": content, **named}


class TextFormat(Body):
    type: Literal["text"]


class ChatBody(GenerationBody):
    """POST /v1/chat/completions."""

    messages: Several[Message] = Field(
        description="The whole conversation; in a session, what has been said since its last answer."
    )
    max_tokens: Annotated[int, Field(ge=1, lt=2**31)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1, lt=2**31)] | None = None
    logprobs: bool | None = False
    top_logprobs: Annotated[int, Field(ge=0, le=MAX_TOP)] | None = None
    response_format: TextFormat | None = None

    @model_validator(mode="after")
    def _logprobs_fit(self) -> Self:
        if self.top_logprobs is not None and not self.logprobs:
            raise ValueError("top_logprobs needs logprobs to be true")
        return self

    @property
    def alternatives(self) -> int | None:
        return (self.top_logprobs or 0) if self.logprobs else None


class PredictBody(Body):
    """POST /v1/predict."""

    model: Text | None = Field(None, description="The name of the model that is served; it may be left out.")
    texts: Annotated[list[Text | Annotated[list[Text], Field(min_length=2, max_length=2)]], Field(min_length=1)] = (
        Field(description="Texts, or pairs of texts for a model that was trained on pairs.")
    )


# --- answers, for the OpenAPI page: the server builds them as plain objects


class PromptDetails(BaseModel):
    cached_tokens: int = Field(description="Tokens of the prompt that were in a kept state, and were not read again.")


class Usage(BaseModel):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetails


class Answer(BaseModel):
    id: str
    created: int
    model: str
    usage: Usage
    session: str | None = None


class CompletionChoice(BaseModel):
    index: int
    text: str
    logprobs: Object | None
    finish_reason: Literal["stop", "length"]


class Completion(Answer):
    object: Literal["text_completion"]
    choices: list[CompletionChoice]


class Reply(BaseModel):
    role: Literal["assistant"]
    content: str
    refusal: None = None


class ChatChoice(BaseModel):
    index: int
    message: Reply
    logprobs: Object | None
    finish_reason: Literal["stop", "length"]


class ChatCompletion(Answer):
    object: Literal["chat.completion"]
    choices: list[ChatChoice]


class Prediction(BaseModel):
    model_config = ConfigDict(extra="allow")
    prediction: str | float | list[str]


class Predictions(BaseModel):
    model: str
    predictions: list[Prediction]


class ModelEntry(BaseModel):
    model_config = ConfigDict(extra="allow")
    id: str
    object: Literal["model"]
    created: int
    owned_by: str


class Models(BaseModel):
    object: Literal["list"]
    data: list[ModelEntry]


class Health(BaseModel):
    status: Literal["ok", "stopping"]


class ErrorDetail(BaseModel):
    message: str
    type: str
    param: str | None
    code: str | None


class ErrorBody(BaseModel):
    error: ErrorDetail
