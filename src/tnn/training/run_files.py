"""The names of files in the folder of a run."""

RECIPE, FINGERPRINTS, LOG = "recipe.yaml", "fingerprints.json", "log.jsonl"
MODEL, MEASURED, CARD = "config.json", "measured.json", "README.md"  # of a finished run
