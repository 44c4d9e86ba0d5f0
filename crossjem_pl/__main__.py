"""`python -m crossjem_pl` is the console script `crossjem`."""

import sys

from crossjem_pl.cli import main

if __name__ == "__main__":
    sys.exit(main())
