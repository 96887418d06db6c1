"""Planted faults: slips that are easy to make, each of which a named test must catch.

``python -m tests.faults`` plants them one at a time and runs the test that answers for each.
"""
