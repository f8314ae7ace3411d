"""What the tasks of Long-Range Arena ask of a model, in the harness of the paper's authors."""

from typing import Any

TEXT: dict[str, Any] = {"vocab_size": 135, "num_labels": 2}
LISTOPS: dict[str, Any] = {"vocab_size": 18, "num_labels": 10}
RETRIEVAL: dict[str, Any] = {"vocab_size": 98, "num_labels": 2}
PATHFINDER: dict[str, Any] = {"image_size": 32, "num_labels": 2, "pooling": "last"}
IMAGE: dict[str, Any] = {"image_size": 32, "num_labels": 10}
