"""Numbers about the server, in the text format that Prometheus reads."""

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence

TIMES = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)  # seconds, to the first token
STEPS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)  # seconds, per token


Read = Callable[[], float]


class Counter:
    """A number per set of labels, which only grows."""

    def __init__(self, name: str, about: str, labels: Sequence[str] = ()):
        self._name, self._about, self._labels = name, about, labels
        self._values: dict[tuple[str, ...], float] = {} if labels else {(): 0}

    def add(self, amount: float = 1, *labels: str) -> None:
        self._values[labels] = self._values.get(labels, 0) + amount

    def lines(self) -> list[str]:
        head = [f"# HELP {self._name} {self._about}", f"# TYPE {self._name} counter"]
        return head + [_line(self._name, self._labels, key, value) for key, value in [*self._values.items()]]


class Gauge:
    """Numbers of now, per value of a label if it has one."""

    def __init__(self, name: str, about: str, read: Read | Mapping[str, Read]):
        self._name, self._about, self._read = name, about, read

    def lines(self) -> list[str]:
        head = [f"# HELP {self._name} {self._about}", f"# TYPE {self._name} gauge"]
        if not isinstance(self._read, Mapping):
            return [*head, _line(self._name, (), (), self._read())]
        return head + [_line(self._name, ("kind",), (kind,), read()) for kind, read in self._read.items()]


class Histogram:
    """How many values are at most as large as each bound, their number and their sum.

    >>> from tnn.serving.metrics import Histogram
    >>> seconds = Histogram("seconds", "Time.", bounds=(1.0, 2.0))
    >>> seconds.add(1.5)
    >>> seconds.lines()[3:]
    ['seconds_bucket{le="2.0"} 1', 'seconds_bucket{le="+Inf"} 1', 'seconds_sum 1.5', 'seconds_count 1']
    """

    def __init__(self, name: str, about: str, bounds: Sequence[float]):
        self._name, self._about, self._bounds = name, about, bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def add(self, value: float) -> None:
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def lines(self) -> list[str]:
        head = [f"# HELP {self._name} {self._about}", f"# TYPE {self._name} histogram"]
        total, buckets = 0, []
        for bound, count in zip((*map(str, self._bounds), "+Inf"), [*self._counts], strict=True):
            total += count
            buckets.append(_line(f"{self._name}_bucket", ("le",), (bound,), total))
        return [*head, *buckets, f"{self._name}_sum {self._sum:g}", f"{self._name}_count {total}"]


class Metrics:
    """All of them. The engine reports to it what it reads and writes.

    >>> from tnn.serving.metrics import Metrics
    >>> metrics = Metrics()
    >>> metrics.read(tokens=7, known=2)
    >>> "tnn_prompt_tokens_total 7" in metrics.render().splitlines()
    True
    """

    def __init__(self) -> None:
        self.requests = Counter("tnn_requests_total", "Answers, by route and status.", ("route", "status"))
        self._prompt = Counter("tnn_prompt_tokens_total", "Tokens of prompts that were read.")
        self._known = Counter("tnn_known_prompt_tokens_total", "Tokens of prompts that were in a kept state.")
        self._tokens = Counter("tnn_generated_tokens_total", "Tokens that were written.")
        self._first = Histogram("tnn_time_to_first_token_seconds", "From the request to its first token.", TIMES)
        self._step = Histogram("tnn_time_per_token_seconds", "Of each token after the first.", STEPS)
        self._gauges: list[Gauge] = []

    def gauge(self, name: str, about: str, read: Read | Mapping[str, Read]) -> None:
        """Something that is looked up when it is asked for."""
        self._gauges.append(Gauge(name, about, read))

    def read(self, tokens: int, known: int) -> None:
        self._prompt.add(tokens)
        self._known.add(known)

    def wrote(self, seconds: float, *, first: bool) -> None:
        self._tokens.add()
        (self._first if first else self._step).add(seconds)

    def render(self) -> str:
        parts: list[Counter | Gauge | Histogram] = [
            self.requests,
            self._prompt,
            self._known,
            self._tokens,
            *self._gauges,
            self._first,
            self._step,
        ]
        return "\n".join(line for part in parts for line in part.lines()) + "\n"


def _line(name: str, labels: Sequence[str], values: Sequence[str], number: float) -> str:
    pairs = ",".join(f'{label}="{value}"' for label, value in zip(labels, values, strict=True))
    return f"{name}{{{pairs}}} {number:.15g}" if pairs else f"{name} {number:.15g}"
