"""Talk to a decision service from Python; knows its protocol and nothing of its inside."""
