"""Experiments with Long-Range Arena."""
