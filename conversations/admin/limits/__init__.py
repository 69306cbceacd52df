"""Admin of limits of use and of their temporary raises."""
