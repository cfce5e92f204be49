"""Entry point for `python -m backstory.cli`."""

from backstory.cli import main

if __name__ == "__main__":
    main()
