"""The decision service: decisions over HTTP, durable, replayable, evaluable."""
