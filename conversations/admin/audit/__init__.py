"""The admin's page of the audit log."""
