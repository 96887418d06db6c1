"""Hold an implementation, ours or anybody's, to the oracle: operators, candidates, search."""
