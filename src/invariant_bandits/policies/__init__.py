"""The online phase: policies that choose and learn round by round."""
