"""What all attention mixers share: queries, keys and values of each head, and the output projection."""

from typing import Any, ClassVar

from torch import Tensor, nn

from tnn.layers.mixer import Mixer, check_heads
from tnn.mixers.heads import join_heads, split_heads


class Attention(Mixer):
    """Four dense layers; a subclass writes what happens between them.

    The layers named in `xavier` start from Xavier's uniform distribution (query, key and value with gain 2^-1/2), the
    others from torch's default.
    """

    xavier: ClassVar[tuple[str, ...]] = ("query", "key", "value", "out")

    def __init__(self, hidden_size: int, *, causal: bool = False, num_heads: int = 1, as_published: bool = False):
        Attention.check_options(hidden_size, num_heads=num_heads)
        super().__init__(hidden_size, causal=causal, as_published=as_published)
        self.num_heads = num_heads
        self.head_size = hidden_size // num_heads
        self.query_proj = self._dense("query")
        self.key_proj = self._dense("key")
        self.value_proj = self._dense("value")
        self.out_proj = self._dense("out")

    @classmethod
    def check_options(cls, hidden_size: int, *, num_heads: int = 1, **options: Any) -> None:
        super().check_options(hidden_size, **options)
        check_heads("num_heads", hidden_size, num_heads)

    def _dense(self, name: str) -> nn.Linear:
        size = self.hidden_size
        if name not in self.xavier:
            return nn.Linear(size, size)
        return XavierLinear(size, size, zero_bias=True) if name == "out" else XavierLinear(size, size, gain=2**-0.5)

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """x (..., n, hidden_size) -> queries, keys and values, each (..., heads, n, head_size)."""
        q, k, v = self.query_proj(x), self.key_proj(x), self.value_proj(x)
        return split_heads(q, self.num_heads), split_heads(k, self.num_heads), split_heads(v, self.num_heads)

    def output(self, y: Tensor) -> Tensor:
        """y (..., heads, n, head_size) -> (..., n, hidden_size)."""
        return self.out_proj(join_heads(y))

    def extra_repr(self) -> str:
        return f"num_heads={self.num_heads}, {super().extra_repr()}"


class XavierLinear(nn.Linear):
    """A dense layer with Xavier's uniform initialisation; the bias starts from torch's default, or from 0."""

    def __init__(self, in_features: int, out_features: int, *, gain: float = 1.0, zero_bias: bool = False):
        self.gain, self.zero_bias = gain, zero_bias  # before the constructor of Linear, which draws the weights
        super().__init__(in_features, out_features)

    def reset_parameters(self) -> None:
        super().reset_parameters()
        nn.init.xavier_uniform_(self.weight, gain=self.gain)
        if self.zero_bias:
            nn.init.zeros_(self.bias)
