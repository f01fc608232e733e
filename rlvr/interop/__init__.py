"""Doors to other programs: servers that complete prompts, and files that they read and write."""
