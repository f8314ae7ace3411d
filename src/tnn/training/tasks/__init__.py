"""Kinds of tasks: one class for each, with its part of the recipe, its data, its model and its evaluation.

A new kind of task is a subclass of `tnn.training.Task`, registered under the name that recipes use for it. All modules
of this package are imported when a task is first asked for.
"""
