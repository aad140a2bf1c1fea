"""New rounds for a model, and what changed since it was fitted.

This room may know models and what they are made of; it knows nothing of evaluation, pages and HTTP.
"""
