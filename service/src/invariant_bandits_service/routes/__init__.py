"""The service's own protocol, version 1, and the page.

Routes may know the engine's works and views; they must not know how events are stored.
"""
