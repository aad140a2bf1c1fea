"""Feature maps: what the columns of a log, and the label of an arm, become: (context, action) → φ.

Start with `maps` (what every feature map can be asked). `rows` and `arm_maps` have the four maps:
RowFeatures, OwnCoefficients, SharedSlopes and PooledLevels. `columns` encodes one column, `collinearity` says
what no log can estimate, `sharing` what arms share, and `serving` reads the input of a decision.
This package must not know files or policies.
"""
