"""From windowed moments to what lasts: joint diagonalisation, blocks, invariance, and the fitted split."""
