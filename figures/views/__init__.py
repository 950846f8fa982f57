"""What pictures share: rows of a table as lines, points and cells of `arith_lens.plotting`."""
