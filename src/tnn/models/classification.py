"""What classifiers share: pooling a sequence, mapping it to labels, and the loss."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tnn._precision import compute_dtype
from tnn.layers.activation import activation
from tnn.models.backbone import TNNPreTrainedModel
from tnn.models.configuration import TNNBlockConfig
from tnn.models.inputs import check_ids


class ClassificationHead(nn.Module):
    """A linear map to the labels, after a hidden layer if there is an activation.

    transformers and PEFT know the head by the name of the class and by `classifier`, its name in a model.
    """

    def __init__(self, config: TNNBlockConfig, features: int, act: str | None):
        super().__init__()
        self.dropout = nn.Dropout(config.classifier_dropout)
        self._activation = None if act is None else activation("classifier_act", act)
        inner = config.classifier_size or config.hidden_size
        self.hidden = None if act is None else nn.Linear(features, inner)
        self.out = nn.Linear(features if act is None else inner, config.num_labels)

    def forward(self, x: Tensor) -> Tensor:
        if self.hidden is not None and self._activation is not None:
            x = self._activation(self.hidden(self.dropout(x)))
        return self.out(self.dropout(x))


def pool(x: Tensor, mask: Tensor | None, how: str) -> Tensor:
    """x (batch, n, d), mask (batch, n) -> (batch, d): mean over the real positions, or the first or last of them."""
    if mask is None:
        return x.mean(1) if how == "mean" else x[:, 0 if how == "first" else -1]
    real = mask.bool()
    if how == "mean":
        total = x.masked_fill(~real.unsqueeze(-1), 0).sum(1, dtype=compute_dtype(x))
        return (total / real.sum(1, keepdim=True).clamp_min(1)).to(x.dtype)
    n = x.shape[1]
    index = real.long().argmax(1) if how == "first" else n - 1 - real.flip(1).long().argmax(1)
    return x[torch.arange(x.shape[0], device=x.device), index]


def classification_loss(model: TNNPreTrainedModel, logits: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy of one label, squared error of numbers, or binary cross-entropy of several labels.

    Which one is `config.problem_type`; if that is None, numbers for `num_labels=1`, one label for integer labels. One
    label may also be given as the probability of each, in the shape of the logits.
    """
    if labels.shape[:1] != logits.shape[:1]:
        raise ValueError(f"labels must hold {len(logits)} rows, one per sequence; got shape {tuple(labels.shape)}")
    kind = model.config.problem_type
    one_label = kind is None and model.config.num_labels > 1 and not labels.is_floating_point()
    if kind == "single_label_classification" and labels.is_floating_point() and labels.shape == logits.shape:
        return F.cross_entropy(logits.to(compute_dtype(logits)), labels.to(compute_dtype(logits)))
    if kind == "single_label_classification" or one_label:
        if labels.numel() != logits.shape[0]:
            raise ValueError(
                f"labels must have shape {tuple(logits.shape[:1])}, one per sequence; got {tuple(labels.shape)} "
                '(several per sequence: problem_type="multi_label_classification")'
            )
        check_ids("labels", labels, model.config.num_labels)
    elif labels.numel() != logits.numel():
        raise ValueError(f"labels must have shape {tuple(logits.shape)}; got {tuple(labels.shape)}")
    else:
        labels = labels.to(logits.dtype)
    return model.loss_function(labels=labels, pooled_logits=logits, logits=logits, config=model.config)
