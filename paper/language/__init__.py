"""Experiments with autoregressive language models."""
