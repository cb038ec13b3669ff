"""The hostile inputs of tools/attack.py, by class. A class is a function of a Workshop that yields Cases."""
from attack_cases import chats, commands, models, runs, settings, shared_state, stored, system, text
from attack_cases.case import Case, Workshop

__all__ = ["Case", "Workshop", "classes"]


def classes():
    """Name -> function."""
    found = {}
    for module in (stored, text, chats, models, settings, runs, shared_state, commands, system):
        found.update(module.CLASSES)
    return found
