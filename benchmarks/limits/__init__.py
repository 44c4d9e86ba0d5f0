"""Where a joint scorer loses accuracy: with the number of candidates, and on which kinds of lists."""
