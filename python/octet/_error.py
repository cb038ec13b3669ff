"""The one exception of the package."""

_EXIT_CODES = {"invalid_argument": 2, "bad_data": 3, "io": 3, "numerics": 4, "device": 5, "internal": 1}


class Error(RuntimeError):
    """The user, the data or the machine is at fault. The message is the line that the program prints.

    code: "invalid_argument", "bad_data", "io", "numerics", "device" or "internal".
    exit_code: the status with which the program ends for it: 2, 3, 3, 4, 5 or 1.
    """

    def __init__(self, message: str, code: str = "invalid_argument"):
        super().__init__(message)
        self.code = code
        self.exit_code = _EXIT_CODES[code]

    def __reduce__(self):
        return type(self), (str(self), self.code)
