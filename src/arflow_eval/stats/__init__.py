"""Statistics of recorded-frame errors: masks and pooling, intervals, influence. Numpy and scipy."""
