"""The paper's claims, one row each: the paper's value, this model's, and whether it holds."""

from figures.claims.exhibit import main
from figures.command import command

if __name__ == "__main__":
    command(main, "claims", __doc__)
