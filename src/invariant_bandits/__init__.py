"""Contextual bandits that remember what lasts and relearn what changed.

The public names are listed in `__init__.pyi` and imported when first used, so that importing the package
costs next to nothing.
"""

import lazy_loader

from invariant_bandits.version import __version__ as __version__

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
