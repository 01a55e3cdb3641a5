"""`python -m ferrule` is `ferrule`."""

from ferrule.cli.main import main

if __name__ == "__main__":
    main()
