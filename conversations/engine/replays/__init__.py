"""Runs turns again for staff: with another model, other instructions or tools."""
