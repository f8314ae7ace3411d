"""The tables and figures of the paper, made again: each an experiment of many trials, which are run once and kept."""
