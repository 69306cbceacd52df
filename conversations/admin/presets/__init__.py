"""Admin of presets: drafts, versions and evaluations."""
