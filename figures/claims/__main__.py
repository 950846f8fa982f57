"""The paper's claims, one row each: the paper's value, this model's, and whether it holds."""

from figures.claims.checking import main as main
