import pytest
import torch

from tnn import TNNConfig, TNNForCausalLM
from tnn.data import byte_tokenizer

VOCABULARY = 260
MODELS = {
    "exact": {"decay": 0.9},
    "no decay": {"decay": 1.0},
    "convolution": {"decay": 0.8, "short_convolution": 3},
    "state space": {"decay": 0.9},
    "hybrid": {"mixer": ["tnn", "transformer"], "num_attention_heads": 2, "position_embedding": "sinusoidal"},
    "linear": {"mixer": "elu", "num_attention_heads": 2},
}
TEMPLATE = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant: "


@pytest.fixture(autouse=True)
def _few_threads(one_thread):
    pass


@pytest.fixture(scope="session")
def model_of():
    """model_of(name): a model of bytes whose next token depends on many earlier ones; made once."""
    made = {}

    def make(name):
        if name not in made:
            with torch.random.fork_rng():
                torch.manual_seed(0)
                sizes = {"vocab_size": VOCABULARY, "hidden_size": 16, "num_hidden_layers": 2, "rpe_size": 8}
                sizes |= {"rpe_num_layers": 2, "tie_word_embeddings": False, "initializer_range": 0.5}
                model = TNNForCausalLM(TNNConfig(**sizes, **MODELS[name])).eval()
            model.generation_config.eos_token_id = None
            made[name] = model.to_state_space(1e-3) if name == "state space" else model
        return made[name]

    return make


@pytest.fixture
def tokenizer():
    """Bytes, with the simplest of all chat templates."""
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = TEMPLATE
    return tokenizer
