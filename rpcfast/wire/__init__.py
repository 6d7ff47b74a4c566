"""Bytes to events and back. No module below here imports asyncio, socket, ssl, threading or time."""
