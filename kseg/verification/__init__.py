"""Check everything that the files of a log say of themselves and of each other; nothing is changed."""
