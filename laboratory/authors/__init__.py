"""Attribution scores of this project beside those of the authors' own code, on one random model.

`comparison` computes the scores of this project, and starts one process for each code of others.
That process runs one of `plain`, `eap_ig`, `lxt`, `relp` and `gim`. They share `exchange` and
import nothing else of this project, because other people's code needs other packages.
"""
