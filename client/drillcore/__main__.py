"""`python -m drillcore` runs the command `drillcore`."""

from drillcore.cli import main

if __name__ == "__main__":
    main()
