"""Models as `pyfunc` models of MLflow: logged, registered and served like any other."""

from __future__ import annotations

import tempfile
from os import PathLike
from pathlib import Path
from typing import Any

from invariant_bandits.model.model import Model
from invariant_bandits.optional import require


def save_pyfunc(model: Model, path: str | PathLike[str], **options: Any) -> None:
    """Save a model as a `pyfunc` in a folder. Needs mlflow or mlflow-skinny.

    `mlflow.pyfunc.load_model(path).predict(frame)` decides for every row of a frame of contexts and returns a
    frame with the columns of `Model.decide_many`.

    Parameters
    ----------
    model : Model
        Stored as the artifact `model`, in its own file without pickle.
    path : str or PathLike
        A new folder.
    **options :
        Those of `mlflow.pyfunc.save_model`.
    """
    pyfunc = require("mlflow.pyfunc", "save_pyfunc")

    class DecisionModel(pyfunc.PythonModel):  # type: ignore[misc, name-defined]
        """Reads the file and decides; defined here because its base is there only with MLflow."""

        def load_context(self, context: Any) -> None:
            """Read the model."""
            self.model = Model.load(context.artifacts["model"])

        def predict(self, context, model_input, params=None):  # type: ignore[no-untyped-def]
            """A decision for every row; MLflow takes type hints for a schema and warns of others."""
            return self.model.decide_many(model_input)

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "decisions.model"
        model.save(file)
        artifacts = {"model": str(file)}
        pyfunc.save_model(
            str(path), python_model=DecisionModel(), artifacts=artifacts, **options
        )
