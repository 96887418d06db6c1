"""The one kind of error that is the user's to mend: a line on stderr and exit code 2."""


class InputError(ValueError):
    """Bad input: names the file, field or shape, and what was expected instead."""
