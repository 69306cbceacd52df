"""Pages of the admin about use and money: usage, bills, limits."""
