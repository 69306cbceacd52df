"""Announcements and terms of use, as this process knows them."""
