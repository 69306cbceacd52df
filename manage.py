#!/usr/bin/env python
"""Run Django's and Parley's commands."""

from __future__ import annotations

from project.command_line import main

if __name__ == "__main__":
    main()
