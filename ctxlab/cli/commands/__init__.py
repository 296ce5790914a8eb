"""The commands of ctxlab, one file each."""
