"""The numbers of each question, as one tidy table: the only place of `figures` that aggregates.

A module reads the stored results of a question's experiments and makes its rows. Pictures,
captions, printed tables, claims and predictions read these rows, and compute no mean and no
interval.
"""
