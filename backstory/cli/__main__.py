"""`python -m backstory.cli` is `backstory`."""

from backstory.cli import main

if __name__ == "__main__":
    main()
