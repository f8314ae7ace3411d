"""Experiments: recipes, training, evaluation, and the tables and figures that come of them."""
