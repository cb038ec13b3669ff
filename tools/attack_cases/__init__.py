"""The hostile inputs of tools/attack.py, by class. A class is a function of a Workshop that yields Cases."""
from attack_cases import commands, runs, settings, stored, system, text
from attack_cases.case import Case, Workshop

__all__ = ["Case", "Workshop", "classes"]


def classes():
    """Name -> function."""
    found = {}
    for module in (stored, text, settings, runs, commands, system):
        found.update(module.CLASSES)
    return found
