"""Pages of the admin about the installation as a whole."""
