"""Logs: files, tables and frames become moments per window, and rounds.

Start with `read` (the questions that can be asked of a log) and `log` (an opened log). `schema` says what the
columns mean; a feature map (room `features`) says what becomes of them. `reader` makes rounds of batches and
`aggregation` moments of rounds, in this process or on a cluster; `formats` has one module per format,
`quality` counts problems and `feedback` holds rounds in memory. This package must not know policies.
Import names from their modules; most of them need pyarrow.
"""
