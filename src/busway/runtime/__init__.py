"""Where time, randomness, threads and sockets enter: the seams filled with the real machine."""
