"""Several processes that serve as one: the overseer that keeps them, and how they pass work to each other."""
