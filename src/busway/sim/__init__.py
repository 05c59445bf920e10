"""Simulation: the seams filled virtually, from one seed, so that a failure replays (D-35)."""
