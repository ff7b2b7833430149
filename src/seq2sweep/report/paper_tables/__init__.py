"""Tables 1, 2 and 4 of the paper, measured; Table 3 is `seq2sweep.report.table`, of every sweep."""
