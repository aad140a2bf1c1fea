"""Names of `ib.simulation`, each imported when it is first used."""

from .episodes import Environment as Environment
from .episodes import Episode as Episode
from .episodes import PaperEpisodes as PaperEpisodes
from .labelled_arms import LabelledArms as LabelledArms
from .paper import PaperWorld as PaperWorld
