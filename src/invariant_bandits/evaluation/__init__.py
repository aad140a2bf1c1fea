"""What would another policy have earned? Off-policy estimators, replay, exact play, and how sure they are.

It must not know pages, pictures, the command and HTTP.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
