"""The program `ferrule`, which is also `python -m ferrule`."""


def main() -> None:
    """Run one command; Ctrl-C ends it also while what it needs is imported."""
    try:
        from ferrule.cli.main import main as run

        run()
    except KeyboardInterrupt:
        raise SystemExit(130) from None


if __name__ == "__main__":
    main()
