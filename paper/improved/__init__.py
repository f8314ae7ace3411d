"""A better TNN: variants of it beside its rivals, on bytes of enwik8 and on Long-Range Arena."""
