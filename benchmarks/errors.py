"""The error for bad input: the command line prints one line on stderr and exits with 2."""


class InputError(ValueError):
    """Bad input: the message names the file, field or shape, and what was expected."""
