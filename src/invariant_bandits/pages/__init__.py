"""Self-contained HTML pages: no script, no font, no picture from elsewhere."""
