"""A page to look at sessions and recordings: where the context went, call by call. Needs the extra ``ctxfs[view]``."""
