"""Which of several servers takes a call, and whether one may: decided without a clock, randomness or I/O."""
