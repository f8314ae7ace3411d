"""The reproduction of the paper: each table and figure is an experiment of many trials, which are run once and kept."""
