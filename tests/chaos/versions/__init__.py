"""An earlier version and this one side by side, as while processes are replaced."""
