"""From a recipe to what is trained: model, examples, and how they are judged."""
