"""Streams of rounds whose truth is known."""
