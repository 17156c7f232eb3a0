"""`python -m drillcore` is `drillcore`."""

from drillcore.cli import main

if __name__ == "__main__":
    main()
