"""``@covers(expansionnet_v2=[4, 5])`` on a test: the equations that the property ties together.

``captionbench equations`` reads the decorators from the source, so keep the arguments literal.
"""

from reference.equations import PAPERS


def covers(**equations):
    """Name the equations that a test is a property of; unknown ones are an error at import."""
    for paper, numbers in equations.items():
        for number in numbers:
            if number not in PAPERS[paper].numbers:
                raise ValueError(f"{paper} has no equation {number!r}")
    return lambda test: test
