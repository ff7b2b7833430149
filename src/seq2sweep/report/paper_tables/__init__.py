"""Tables 1 and 2 of the paper, measured; Table 3 is `seq2sweep.report.table`, of every sweep."""
