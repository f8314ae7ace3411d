"""What transformers' mixins ask of a model tester: a small configuration, and inputs for it."""

from typing import Any

import torch

from tnn import TNNConfig, TNNForCausalLM, TNNImageConfig

# Biases of 0 and weights that follow the range: the suite sets it near 0 and looks at the means of new weights.
INITIALIZATION = {"initializer": "normal", "initializer_range": 0.2}


class TextTester:
    """`changes` are arguments of TNNConfig; the sizes are attributes, as the mixins read them."""

    batch_size = 3
    seq_length = 20  # more lags than a state space keeps as they are
    vocab_size = 99
    hidden_size = 16
    num_hidden_layers = 2
    num_attention_heads = 2
    is_training = True
    causal_lm_class = TNNForCausalLM

    def __init__(self, **changes: Any):
        self.changes = changes

    def get_config(self) -> TNNConfig:
        sizes = {"vocab_size": self.vocab_size, "hidden_size": self.hidden_size, "rpe_size": 8, "rpe_num_layers": 2}
        sizes |= {"num_hidden_layers": self.num_hidden_layers, "num_attention_heads": self.num_attention_heads}
        special = {"pad_token_id": 0, "bos_token_id": 97, "eos_token_id": 98}  # the suite takes 1 to 19 for a text
        return TNNConfig(**(sizes | special | INITIALIZATION | self.changes))

    def prepare_config_and_inputs_for_common(self) -> tuple[TNNConfig, dict[str, torch.Tensor]]:
        ids = torch.randint(1, self.vocab_size - 2, (self.batch_size, self.seq_length))
        return self.get_config(), {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


class PairTester(TextTester):
    """Two sequences per row."""

    def prepare_config_and_inputs_for_common(self) -> tuple[TNNConfig, dict[str, torch.Tensor]]:
        config, first = super().prepare_config_and_inputs_for_common()
        _, second = super().prepare_config_and_inputs_for_common()
        second["input_ids"] %= self.vocab_size - 20  # the suite makes the vocabulary smaller, for the first alone
        return config, first | {f"pair_{name}": value for name, value in second.items()}


class ImageTester:
    """Of a grid of patches."""

    batch_size = 3
    image_size = 8
    patch_size = 2
    seq_length = 16  # patches
    num_channels = 3
    hidden_size = 16
    num_hidden_layers = 2
    num_attention_heads = 2
    is_training = True

    def get_config(self) -> TNNImageConfig:
        return TNNImageConfig(
            image_size=self.image_size,
            patch_size=self.patch_size,
            num_channels=self.num_channels,
            hidden_size=self.hidden_size,
            num_hidden_layers=self.num_hidden_layers,
            num_attention_heads=self.num_attention_heads,
            rpe_size=8,
            num_labels=3,
            **INITIALIZATION,
        )

    def prepare_config_and_inputs_for_common(self) -> tuple[TNNImageConfig, dict[str, torch.Tensor]]:
        shape = (self.batch_size, self.num_channels, self.image_size, self.image_size)
        return self.get_config(), {"pixel_values": torch.rand(shape)}
