"""The version of all packages of this repository: each takes it from this file."""

__version__ = "0.2.0"
