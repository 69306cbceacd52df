"""Tries drafts of presets: previews, and evaluations in the background."""
