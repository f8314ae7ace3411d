"""Experiments with time and memory."""
