from . import formats as formats, graph as graph, optim as optim, prove as prove, study as study, torch as torch
from ._error import Error as Error
from ._model import Model as Model, load as load
from ._plan import plan as plan
from ._program import run as run
from ._train import Run as Run, train as train
from ._version import __version__ as __version__

__all__ = ["Error", "__version__", "formats", "graph", "load", "optim", "plan", "prove", "run", "study", "torch", "train"]
