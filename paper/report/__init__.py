"""All outcomes together, as a page and in Markdown."""
