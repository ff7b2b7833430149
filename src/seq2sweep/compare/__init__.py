"""What two runs differ in, and whether one of them is better: `seq2sweep compare`."""
