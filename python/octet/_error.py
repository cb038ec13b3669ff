"""The one exception of the package."""

_EXIT_CODES = {"invalid_argument": 2, "bad_data": 3, "io": 3, "numerics": 4, "device": 5, "internal": 1,
               "rank_lost": 75}


class Error(RuntimeError):
    """The user, the data or the machine is at fault. The message is the line that the program prints.

    code: "invalid_argument", "bad_data", "io", "numerics", "device", "internal" or "rank_lost". Errors of the first two, wrong arguments and
    wrong data, are ValueErrors as well.
    exit_code: the status with which the program ends for it: 2, 3, 3, 4, 5, 1 or 75.
    """

    def __new__(cls, message: str = "", code: str = "invalid_argument"):
        is_value = cls is Error and code in ("invalid_argument", "bad_data")
        return super().__new__(_WrongValue if is_value else cls, message, code)

    def __init__(self, message: str, code: str = "invalid_argument"):
        super().__init__(message)
        self.code = code
        self.exit_code = _EXIT_CODES[code]

    def __reduce__(self):
        return Error if type(self) is _WrongValue else type(self), (str(self), self.code)


class _WrongValue(Error, ValueError):
    """An octet.Error that Python's own `except ValueError` takes."""


_WrongValue.__name__ = _WrongValue.__qualname__ = "Error"
