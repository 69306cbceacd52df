"""What staff tell everybody: announcements, and the terms of use."""
