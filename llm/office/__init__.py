"""The text of Word, Excel and PowerPoint files. Pure."""
