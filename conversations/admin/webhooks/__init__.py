"""Admin of webhook endpoints and deliveries."""
