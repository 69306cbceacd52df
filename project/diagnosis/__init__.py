"""What the command `doctor` and the admin's first steps find out about a server."""
