"""Experiments with bidirectional language models."""
