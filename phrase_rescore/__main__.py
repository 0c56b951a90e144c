"""``python -m phrase_rescore``: the same as the console script."""

from phrase_rescore.cli.main import main

if __name__ == "__main__":
    main()
