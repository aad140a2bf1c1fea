"""Logs as people have them: files, tables and frames become moments per window, and rounds.

A newcomer begins in `reading` (the questions one may ask of a log) and `log` (an opened log, looked at once). `schema`
says what the columns mean and `features` what becomes of them, `formats` has one module per format, `quality` counts
what was wrong, `engines` runs the same function here or on a cluster, `pruning` makes every window estimable, and
`feedback` holds rounds in memory. What is made of moments and rounds is none of this room's business: it must not know
subspaces or policies. Names are imported from their modules; most of them need pyarrow.
"""
